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

const queueLong = `Requests that a rule with on_limit: queue has kept are delivered at the rule's rate. These commands show them,
cancel them, and have those tried again that failed for good.`

const queueExample = `  sluice queue list
  sluice queue dead
  sluice queue replay --all`

// queueCommand is about requests that are kept for later.
func queueCommand() *cobra.Command {
	c := newCommand("queue", "See and change what is kept for later", queueLong, queueExample, nil)
	c.AddCommand(queueListCommand(), queueDeadCommand(), queueStatusCommand(), queueCancelCommand(), queueReplayCommand())
	return c
}

// queueList is what a list is asked.
type queueList struct {
	live  remoteFlags
	most  int
	state string
	after string
}

const queueListLong = `List requests that are kept, the oldest first, and how full the queue is. Without --state those that are not done:
queued, delivering and dead.`

const queueListExample = `  sluice queue list
  sluice queue list --state done -n 5
  sluice queue list -o json`

func queueListCommand() *cobra.Command {
	var f queueList
	c := withoutArguments("list", "List what is kept", queueListLong, queueListExample, f.run)
	c.ValidArgsFunction = cobra.NoFileCompletions
	c.Flags().StringVar(&f.state, "state", "", "only those that are queued, delivering, dead, done or cancelled")
	term.CompleteFlag(c, "state", "queued", "delivering", "dead", "done", "cancelled")
	f.flags(c)
	return c
}

const queueDeadLong = "List requests that were tried as often or as long as their rule says, and why the last attempt failed."

const queueDeadExample = `  sluice queue dead
  sluice queue replay --all`

func queueDeadCommand() *cobra.Command {
	f := queueList{state: "dead"}
	c := withoutArguments("dead", "List what failed for good", queueDeadLong, queueDeadExample, f.run)
	c.ValidArgsFunction = cobra.NoFileCompletions
	f.flags(c)
	return c
}

func (f *queueList) flags(c *cobra.Command) {
	c.Flags().IntVarP(&f.most, "number", "n", 20, "how many to show")
	c.Flags().StringVar(&f.after, "after", "", "go on where a list ended")
	f.live.adminFlags(c)
	term.CompleteFlag(c, "number")
	term.CompleteFlag(c, "after")
}

func (f *queueList) run(c *cobra.Command) error {
	if f.most < 1 || f.most > adminclient.MaxQueuePage {
		return fmt.Errorf("-n %d: write 1 to %d", f.most, adminclient.MaxQueuePage)
	}
	query := url.Values{"n": {fmt.Sprint(f.most)}}
	if f.state != "" {
		query.Set("state", f.state)
	}
	if f.after != "" {
		query.Set("after", f.after)
	}
	return call(c, &f.live, http.MethodGet, "/v1/queue?"+query.Encode(), nil, admincli.WriteQueue)
}
