package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/operate/admincli"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// itemCommand returns a command about one queue item.
func itemCommand(use, short, long, example string, run func(c *cobra.Command, live *remoteFlags, id string) error) *cobra.Command {
	var live remoteFlags
	c := newCommand(use, short, long, example, func(c *cobra.Command, args []string) error { return run(c, &live, args[0]) })
	c.Args = func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return errors.New("one item id is required: write the id from the client's status URL, or from sluice queue list")
		}
		return nil
	}
	c.ValidArgsFunction = cobra.NoFileCompletions
	live.adminFlags(c)
	return c
}

func queueStatusCommand() *cobra.Command {
	return itemCommand("status ID", "Show the status of a queue item",
		"Show the status of a queue item and, once it is delivered, the response of the upstream.",
		"  sluice queue status 5e1f7c0a9b8d4e6f9a3b2c1d0e9f8a7b",
		func(c *cobra.Command, live *remoteFlags, id string) error {
			return call(c, live, http.MethodGet, "/v1/queue/item?id="+url.QueryEscape(id), nil, admincli.WriteItem)
		})
}

func queueCancelCommand() *cobra.Command {
	return itemCommand("cancel ID", "Cancel a queue item",
		"Cancel a queue item, so that it is not delivered. An item that is being delivered cannot be cancelled.",
		"  sluice queue cancel 5e1f7c0a9b8d4e6f9a3b2c1d0e9f8a7b",
		func(c *cobra.Command, live *remoteFlags, id string) error {
			return call(c, live, http.MethodPost, "/v1/queue/cancel", adminmsg.QueueID{ID: id}, admincli.WriteItem)
		})
}

const queueRequeueLong = `Queue a dead letter again, with the original maximum number of attempts and expiry period and the same idempotency key.
With --all, queue all dead letters again.`

const queueRequeueExample = `  sluice queue requeue 5e1f7c0a9b8d4e6f9a3b2c1d0e9f8a7b
  sluice queue requeue --all`

func queueRequeueCommand() *cobra.Command {
	var live remoteFlags
	var all bool
	c := newCommand("requeue [ID]", "Queue dead letters again",
		queueRequeueLong, queueRequeueExample, func(c *cobra.Command, args []string) error {
			if all {
				return requeueAll(c, &live)
			}
			return call(c, &live, http.MethodPost, "/v1/queue/requeue", adminmsg.QueueID{ID: args[0]}, admincli.WriteItem)
		})
	c.Args = func(_ *cobra.Command, args []string) error {
		if all == (len(args) == 1) || len(args) > 1 {
			return errors.New("one item id or --all is required: write the id of a dead letter, which sluice queue dead lists, or --all")
		}
		return nil
	}
	c.ValidArgsFunction = cobra.NoFileCompletions
	c.Flags().BoolVar(&all, "all", false, "requeue all dead letters")
	live.adminFlags(c)
	return c
}

// requeueAll requeues all dead letters.
func requeueAll(c *cobra.Command, live *remoteFlags) error {
	client, err := live.client(c.Context(), c.ErrOrStderr())
	if err != nil {
		return err
	}
	ids, err := client.RequeueDead(c.Context())
	if err != nil {
		return live.advise(c.Context(), err)
	}
	if live.out.IsJSON() {
		return term.WriteJSON(c.OutOrStdout(), map[string]any{"requeued": ids})
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "%s queued again\n", term.Count(len(ids), "request"))
	return err
}
