package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/operate/admincli"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// watchFlags are what watch is asked.
type watchFlags struct {
	out      term.Output
	live     remoteFlags
	interval time.Duration
	times    int
}

func watchCommand() *cobra.Command {
	var f watchFlags
	c := &cobra.Command{
		Use:   "watch [RULE]...",
		Short: "Show what is decided, as it happens",
		Long: "Show how much a running service allows and denies, by rule, as it happens, until ctrl-C. On a terminal it is a\n" +
			"table with the last half minute drawn beside each rule; else a line for each rule that was asked about; with\n" +
			"-o json an object on a line of its own for each interval.",
		Example: "  sluice watch\n" +
			"  sluice watch posts-per-user --interval 5s\n" +
			"  sluice watch -n 60 -o json >minute.jsonl",
		ValidArgsFunction: func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			return ruleNames(f.live.completeRules(c)), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	f.out.AddFlag(c)
	c.Flags().DurationVar(&f.interval, "interval", time.Second, "how often")
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

func (f *watchFlags) show(out io.Writer, w *admincli.View, e *adminmsg.Event, raw json.RawMessage) error {
	switch {
	case f.out.IsJSON():
		_, err := fmt.Fprintf(out, "%s\n", raw)
		return err
	case term.IsTerminal(out):
		return w.WriteScreen(e, out, term.NewStyle(out))
	}
	return w.WriteLines(e, out)
}

// endOfWatch is no error if somebody pressed ctrl-C.
func endOfWatch(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// minInterval is how often a service is asked at the most.
const minInterval = 100 * time.Millisecond
