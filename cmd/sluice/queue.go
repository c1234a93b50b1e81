package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/operate/adminclient"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
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
	live  liveFlags
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

// mostQueue is how many the service lists at a time.
const mostQueue = 1000

func (f *queueList) run(c *cobra.Command) error {
	if f.most < 1 || f.most > mostQueue {
		return fmt.Errorf("-n %d: write 1 to %d", f.most, mostQueue)
	}
	query := url.Values{"n": {fmt.Sprint(f.most)}}
	if f.state != "" {
		query.Set("state", f.state)
	}
	if f.after != "" {
		query.Set("after", f.after)
	}
	return call(c, &f.live, &f.out, http.MethodGet, "/v1/queue?"+query.Encode(), nil, writeQueue)
}

func writeQueue(p *adminmsg.QueuePage, w io.Writer, s term.Style) error {
	n := &p.Counts
	head := fmt.Sprintf("%s queued, %s delivering, %s dead, %s done; %s", term.Thousands(n.Queued), term.Thousands(n.Delivering), term.Thousands(n.Dead),
		term.Thousands(n.Done), bytesText(n.Bytes))
	if n.Queued+n.Delivering > 0 {
		head += ", the oldest for " + term.Seconds(n.OldestSeconds).String()
	}
	if !n.Up {
		head = s.Red("the queue cannot be written: ") + head
	}
	if _, err := fmt.Fprintln(w, head); err != nil || len(p.Items) == 0 {
		return err
	}
	rows := [][]string{{"id", "state", "accepted", right("tries", 5), "whose", ""}}
	for i := range p.Items {
		it := &p.Items[i]
		rows = append(rows, []string{
			term.Printable(it.ID), itemState(it.State, s), clock(it.Accepted), right(fmt.Sprint(it.Attempts), 5), bucketText(it.Rule, it.Key), term.Printable(it.Error),
		})
	}
	if err := term.Table(w, rows); err != nil || p.Next == "" {
		return err
	}
	_, err := fmt.Fprintf(w, "there are more: --after %s\n", term.Printable(p.Next))
	return err
}

func itemState(state string, s term.Style) string {
	switch state {
	case "dead":
		return s.Red(state)
	case "done":
		return s.Green(state)
	}
	return term.Printable(state)
}

func bytesText(n int64) string {
	for _, u := range []struct {
		size int64
		name string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= u.size {
			return fmt.Sprintf("%.1f %s", float64(n)/float64(u.size), u.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}

// itemCommand is a command about one request.
func itemCommand(use, short, long, example string, run func(c *cobra.Command, live *liveFlags, out *term.Output, id string) error) *cobra.Command {
	var live liveFlags
	var out term.Output
	c := &cobra.Command{
		Use: use, Short: short, Long: long, Example: example,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("say which: the id is in the status URL that the caller was given, and in sluice queue list")
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(c *cobra.Command, args []string) error { return run(c, &live, &out, args[0]) },
	}
	out.AddFlag(c)
	live.adminFlags(c)
	return c
}

func queueStatusCommand() *cobra.Command {
	return itemCommand("status ID", "Show what became of a request",
		"Show what became of a request that was kept, and what the upstream answered.",
		"  sluice queue status 5e1f7c0a9b8d4e6f9a3b2c1d0e9f8a7b",
		func(c *cobra.Command, live *liveFlags, out *term.Output, id string) error {
			return call(c, live, out, http.MethodGet, "/v1/queue/item?id="+url.QueryEscape(id), nil, writeItem)
		})
}

func queueCancelCommand() *cobra.Command {
	return itemCommand("cancel ID", "Remove a request that has not begun",
		"Remove a request that is kept, so that it is never delivered. One that is being delivered cannot be removed.",
		"  sluice queue cancel 5e1f7c0a9b8d4e6f9a3b2c1d0e9f8a7b",
		func(c *cobra.Command, live *liveFlags, out *term.Output, id string) error {
			return call(c, live, out, http.MethodPost, "/v1/queue/cancel", adminmsg.QueueID{ID: id}, writeItem)
		})
}

func queueReplayCommand() *cobra.Command {
	var live liveFlags
	var out term.Output
	var all bool
	c := &cobra.Command{
		Use:   "replay [ID]",
		Short: "Try again what failed for good",
		Long: "Have a request that is dead tried again, with as many attempts and as much time as it had and the same\n" +
			"idempotency key. With --all, all that are dead.",
		Example:           "  sluice queue replay 5e1f7c0a9b8d4e6f9a3b2c1d0e9f8a7b\n  sluice queue replay --all",
		ValidArgsFunction: cobra.NoFileCompletions,
		Args: func(_ *cobra.Command, args []string) error {
			if all == (len(args) == 1) || len(args) > 1 {
				return errors.New("say which: an id as sluice queue dead lists them, or --all")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if all {
				return replayAll(c, &live, &out)
			}
			return call(c, &live, &out, http.MethodPost, "/v1/queue/replay", adminmsg.QueueID{ID: args[0]}, writeItem)
		},
	}
	out.AddFlag(c)
	c.Flags().BoolVar(&all, "all", false, "all that are dead")
	live.adminFlags(c)
	return c
}

// replayAll replays a page after the other. Those that are dead again meanwhile are behind where it goes on.
func replayAll(c *cobra.Command, live *liveFlags, out *term.Output) error {
	client, err := live.client(c.Context(), c.ErrOrStderr())
	if err != nil {
		return err
	}
	ids := []string{}
	for after := ""; ; {
		var page adminmsg.QueuePage
		if _, err := client.Get(c.Context(), fmt.Sprintf("/v1/queue?state=dead&n=%d&after=%s", mostQueue, after), &page); err != nil {
			return live.advise(c.Context(), err)
		}
		for i := range page.Items {
			var it adminmsg.QueueItem
			_, err := client.Post(c.Context(), "/v1/queue/replay", adminmsg.QueueID{ID: page.Items[i].ID}, &it)
			var problem *adminclient.ProblemError
			switch {
			case err == nil:
				ids = append(ids, it.ID)
			case errors.As(err, &problem) && problem.Status == http.StatusConflict: // another has replayed it since
			default:
				return live.advise(c.Context(), err)
			}
		}
		if after = page.Next; after == "" {
			break
		}
	}
	if out.IsJSON() {
		return term.WriteJSON(c.OutOrStdout(), map[string]any{"replayed": ids})
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "%s queued again\n", term.Count(len(ids), "request"))
	return err
}

func writeItem(it *adminmsg.QueueItem, w io.Writer, s term.Style) error {
	var b strings.Builder
	line := func(name, text string) { fmt.Fprintf(&b, "%-9s %s\n", name, text) }
	at := func(name string, t *time.Time) {
		if t != nil {
			line(name, clock(*t))
		}
	}
	line("id", term.Printable(it.ID))
	line("state", itemState(it.State, s))
	line("whose", bucketText(it.Rule, it.Key))
	line("accepted", clock(it.Accepted))
	line("tries", fmt.Sprint(it.Attempts))
	if it.Position > 0 {
		line("place", fmt.Sprint(it.Position))
	}
	at("next", it.Next)
	at("changed", it.Changed)
	at("expires", it.Expires)
	if it.Error != "" {
		line("error", term.Printable(it.Error))
	}
	if r := it.Result; r != nil {
		line("answer", strings.TrimSpace(fmt.Sprintf("%d %s, %s", r.Status, http.StatusText(r.Status), bytesText(int64(len(r.Body)+len(r.BodyBase64))))))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
