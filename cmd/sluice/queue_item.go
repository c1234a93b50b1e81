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

// itemCommand is a command about one request.
func itemCommand(use, short, long, example string, run func(c *cobra.Command, live *remoteFlags, id string) error) *cobra.Command {
	var live remoteFlags
	c := newCommand(use, short, long, example, func(c *cobra.Command, args []string) error { return run(c, &live, args[0]) })
	c.Args = func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return errors.New("say which: the id is in the status URL that the caller was given, and in sluice queue list")
		}
		return nil
	}
	c.ValidArgsFunction = cobra.NoFileCompletions
	live.adminFlags(c)
	return c
}

func queueStatusCommand() *cobra.Command {
	return itemCommand("status ID", "Show what became of a request",
		"Show what became of a request that was kept, and what the upstream answered.",
		"  sluice queue status 5e1f7c0a9b8d4e6f9a3b2c1d0e9f8a7b",
		func(c *cobra.Command, live *remoteFlags, id string) error {
			return call(c, live, http.MethodGet, "/v1/queue/item?id="+url.QueryEscape(id), nil, admincli.WriteItem)
		})
}

func queueCancelCommand() *cobra.Command {
	return itemCommand("cancel ID", "Remove a request that has not begun",
		"Remove a request that is kept, so that it is never delivered. One that is being delivered cannot be removed.",
		"  sluice queue cancel 5e1f7c0a9b8d4e6f9a3b2c1d0e9f8a7b",
		func(c *cobra.Command, live *remoteFlags, id string) error {
			return call(c, live, http.MethodPost, "/v1/queue/cancel", adminmsg.QueueID{ID: id}, admincli.WriteItem)
		})
}

const queueReplayLong = `Have a request that is dead tried again, with as many attempts and as much time as it had and the same
idempotency key. With --all, all that are dead.`

const queueReplayExample = `  sluice queue replay 5e1f7c0a9b8d4e6f9a3b2c1d0e9f8a7b
  sluice queue replay --all`

func queueReplayCommand() *cobra.Command {
	var live remoteFlags
	var all bool
	c := newCommand("replay [ID]", "Try again what failed for good",
		queueReplayLong, queueReplayExample, func(c *cobra.Command, args []string) error {
			if all {
				return replayAll(c, &live)
			}
			return call(c, &live, http.MethodPost, "/v1/queue/replay", adminmsg.QueueID{ID: args[0]}, admincli.WriteItem)
		})
	c.Args = func(_ *cobra.Command, args []string) error {
		if all == (len(args) == 1) || len(args) > 1 {
			return errors.New("say which: an id as sluice queue dead lists them, or --all")
		}
		return nil
	}
	c.ValidArgsFunction = cobra.NoFileCompletions
	c.Flags().BoolVar(&all, "all", false, "all that are dead")
	live.adminFlags(c)
	return c
}

// replayAll replays all that are dead.
func replayAll(c *cobra.Command, live *remoteFlags) error {
	client, err := live.client(c.Context(), c.ErrOrStderr())
	if err != nil {
		return err
	}
	ids, err := client.ReplayDead(c.Context())
	if err != nil {
		return live.advise(c.Context(), err)
	}
	if live.out.IsJSON() {
		return term.WriteJSON(c.OutOrStdout(), map[string]any{"replayed": ids})
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "%s queued again\n", term.Count(len(ids), "request"))
	return err
}
