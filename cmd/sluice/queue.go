package main

import (
	"fmt"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/operate/admincli"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminclient"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

const queueLong = `Show, cancel and requeue requests in the durable queue of the gateway. A rule with on_limit: queue stores requests over
its limit there, and the gateway delivers them at the rate of the rule.`

const queueExample = `  sluice queue list
  sluice queue dead
  sluice queue requeue --all`

func queueCommand() *cobra.Command {
	c := newCommand("queue", "Show and change queued requests", queueLong, queueExample, nil)
	c.AddCommand(queueListCommand(), queueDeadCommand(), queueStatusCommand(), queueCancelCommand(), queueRequeueCommand())
	return c
}

// queueList are the flags of the list and dead commands.
type queueList struct {
	live      remoteFlags
	limit     int
	state     string
	pageToken string
}

const queueListLong = `List queue items, oldest first, and the size of the queue. Without --state, items in the states queued, delivering and
dead are listed.`

const queueListExample = `  sluice queue list
  sluice queue list --state done -n 5
  sluice queue list -o json`

func queueListCommand() *cobra.Command {
	var f queueList
	c := withoutArguments("list", "List queue items", queueListLong, queueListExample, f.run)
	c.ValidArgsFunction = cobra.NoFileCompletions
	c.Flags().StringVar(&f.state, "state", "", "list only items in this state: queued, delivering, dead, done or cancelled")
	term.CompleteFlag(c, "state", "queued", "delivering", "dead", "done", "cancelled")
	f.flags(c)
	return c
}

const queueDeadLong = "List dead letters: queue items that reached the maximum number of attempts or the expiry time of their rule, with the\nerror of the last attempt."

const queueDeadExample = `  sluice queue dead
  sluice queue requeue --all`

func queueDeadCommand() *cobra.Command {
	f := queueList{state: "dead"}
	c := withoutArguments("dead", "List dead letters", queueDeadLong, queueDeadExample, f.run)
	c.ValidArgsFunction = cobra.NoFileCompletions
	f.flags(c)
	return c
}

func (f *queueList) flags(c *cobra.Command) {
	term.AddNumber(c, &f.limit, "limit", "n", 20, 1, adminclient.MaxQueuePage, "maximum number of items to show", "")
	c.Flags().StringVar(&f.pageToken, "page-token", "", "token of the next page, as printed below a list")
	f.live.adminFlags(c)
	term.CompleteFlag(c, "limit")
	term.CompleteFlag(c, "page-token")
}

func (f *queueList) run(c *cobra.Command) error {
	query := url.Values{"limit": {fmt.Sprint(f.limit)}}
	if f.state != "" {
		query.Set("state", f.state)
	}
	if f.pageToken != "" {
		query.Set("page_token", f.pageToken)
	}
	return call(c, &f.live, http.MethodGet, "/v1/queue?"+query.Encode(), nil, admincli.WriteQueue)
}
