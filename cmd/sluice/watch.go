package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/operate/admincli"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// watchFlags are what watch is asked.
type watchFlags struct {
	live     remoteFlags
	interval time.Duration
	times    int
}

const watchLong = `Show how much a running service allows and denies, by rule, as it happens, until ctrl-C. On a terminal it is a
table with the last half minute drawn beside each rule; else a line for each rule that was asked about; with
-o json an object on a line of its own for each interval.`

const watchExample = `  sluice watch
  sluice watch posts-per-user --interval 5s
  sluice watch -n 60 -o json >minute.jsonl`

func watchCommand() *cobra.Command {
	var f watchFlags
	c := newCommand("watch [RULE]...", "Show what is decided, as it happens", watchLong, watchExample, f.run)
	c.ValidArgsFunction = func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return ruleNames(f.live.completeRules(c)), cobra.ShellCompDirectiveNoFileComp
	}
	term.AddDuration(c, &f.interval, "interval", "", time.Second, "how often")
	c.Flags().IntVarP(&f.times, "number", "n", 0, "end after so many intervals (default: never)")
	f.live.adminFlags(c)
	term.CompleteFlag(c, "interval", "1s", "5s", "1m")
	term.CompleteFlag(c, "number")
	return c
}

func (f *watchFlags) run(c *cobra.Command, only []string) error {
	switch {
	case f.interval < minInterval:
		return fmt.Errorf("--interval %s: write at least %s", f.interval, minInterval)
	case f.times < 0:
		return fmt.Errorf("-n %d: write how many intervals", f.times)
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
			return fmt.Errorf("the service tells %s: %w", term.Printable(string(raw[:min(len(raw), 80)])), err)
		}
		if !w.Next(&e) {
			continue
		}
		if err := f.show(c.OutOrStdout(), w, &e, raw); err != nil {
			return err
		}
		if n++; n == f.times {
			break
		}
	}
	return nil
}

// checkRules returns an error if the service has no rule of a given name: nothing would ever be shown of it.
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

// endOfWatch drops the error that ctrl-C causes.
func endOfWatch(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// minInterval is how often a service is asked at the most.
const minInterval = 100 * time.Millisecond
