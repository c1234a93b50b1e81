package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/operate/admincli"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// watchFlags are the flags of the watch command.
type watchFlags struct {
	live     remoteFlags
	interval time.Duration
	count    int // intervals to show; 0 means no limit
}

const watchLong = `Show the rates of allowed and denied requests of a running service per rule, live, until ctrl-C. The output on a terminal
is a table with a plot of the last 30 intervals of each rule; otherwise a line per interval for each rule with requests;
with -o json one JSON object per line and interval.`

const watchExample = `  sluice watch
  sluice watch posts-per-user --interval 5s
  sluice watch -n 60 -o json >minute.jsonl`

func watchCommand() *cobra.Command {
	var f watchFlags
	c := newCommand("watch [RULE]...", "Show allowed and denied requests per rule, live", watchLong, watchExample, f.run)
	c.ValidArgsFunction = func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return ruleNames(f.live.completeRules(c)), cobra.ShellCompDirectiveNoFileComp
	}
	term.AddDuration(c, &f.interval, "interval", "", time.Second, "time between two updates")
	term.AddNumber(c, &f.count, "intervals", "n", 0, 1, math.MaxInt32, "stop after this number of intervals (default: no limit)", "")
	f.live.adminFlags(c)
	term.CompleteFlag(c, "interval", "1s", "5s", "1m")
	term.CompleteFlag(c, "intervals")
	return c
}

func (f *watchFlags) run(c *cobra.Command, only []string) error {
	if f.interval < minInterval {
		return fmt.Errorf("--interval %s: write a duration of at least %s", f.interval, minInterval)
	}
	client, err := f.live.client(c.Context(), c.ErrOrStderr())
	if err != nil {
		return err
	}
	if err := f.checkRules(c, only); err != nil {
		return err
	}
	w := admincli.NewView(f.interval, only)
	n := 0
	for raw, err := range client.Watch(c.Context(), f.interval) {
		if err != nil {
			return endOfWatch(c.Context(), f.live.advise(c.Context(), err))
		}
		var e adminmsg.Event
		if err := json.Unmarshal(raw, &e); err != nil {
			return fmt.Errorf("unexpected event from the service: %s: %w", term.Printable(string(raw[:min(len(raw), 80)])), err)
		}
		if !w.Next(&e) {
			continue
		}
		if err := f.show(c.OutOrStdout(), w, &e, raw); err != nil {
			return err
		}
		if n++; n == f.count {
			break
		}
	}
	return nil
}

// checkRules returns an error if the service has no rule of a given name, because the command would then show nothing forever.
func (f *watchFlags) checkRules(c *cobra.Command, only []string) error {
	if len(only) == 0 {
		return nil
	}
	var all adminmsg.Rules
	if _, err := f.live.ask(c, http.MethodGet, "/v1/rules", nil, &all); err != nil {
		return err
	}
	return unknownRule(all.Rules, only)
}

func (f *watchFlags) show(out io.Writer, w *admincli.View, e *adminmsg.Event, raw json.RawMessage) error {
	switch {
	case f.live.out.IsJSON():
		_, err := fmt.Fprintf(out, "%s\n", raw)
		return err
	case term.IsTerminal(out):
		return w.WriteScreen(e, out, term.NewStyle(out))
	}
	return w.WriteLines(e, out)
}

// endOfWatch returns nil instead of the error that ctrl-C causes.
func endOfWatch(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// minInterval is the minimum time between two updates.
const minInterval = 100 * time.Millisecond
