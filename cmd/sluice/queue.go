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

// queueCommand is about requests that are kept for later.
func queueCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "queue",
		Short: "See and change what is kept for later",
		Long: "Requests that a rule with on_limit: queue has kept are delivered at the rule's rate. These commands show them,\n" +
			"cancel them, and have those tried again that failed for good.",
		Example: "  sluice queue list\n  sluice queue dead\n  sluice queue replay --all",
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(queueListCommand(), queueDeadCommand(), queueStatusCommand(), queueCancelCommand(), queueReplayCommand())
	return c
}

// queueList is what a list is asked.
type queueList struct {
	out   term.Output
	live  remoteFlags
	most  int
	state string
	after string
}

func queueListCommand() *cobra.Command {
	var f queueList
	c := &cobra.Command{
		Use:   "list",
		Short: "List what is kept",
		Long: "List requests that are kept, the oldest first, and how full the queue is. Without --state those that are not done:\n" +
			"queued, delivering and dead.",
		Example:           "  sluice queue list\n  sluice queue list --state done -n 5\n  sluice queue list -o json",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	c.Flags().StringVar(&f.state, "state", "", "only those that are queued, delivering, dead, done or cancelled")
	term.CompleteFlag(c, "state", "queued", "delivering", "dead", "done", "cancelled")
	f.flags(c)
	return c
}

func queueDeadCommand() *cobra.Command {
	f := queueList{state: "dead"}
	c := &cobra.Command{
		Use:               "dead",
		Short:             "List what failed for good",
		Long:              "List requests that were tried as often or as long as their rule says, and why the last attempt failed.",
		Example:           "  sluice queue dead\n  sluice queue replay --all",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	f.flags(c)
	return c
}

func (f *queueList) flags(c *cobra.Command) {
	f.out.AddFlag(c)
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
	return call(c, &f.live, &f.out, http.MethodGet, "/v1/queue?"+query.Encode(), nil, admincli.WriteQueue)
}
