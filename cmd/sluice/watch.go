package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// watchFlags are what watch is asked.
type watchFlags struct {
	out      term.Output
	live     liveFlags
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
	w := &liveView{interval: f.interval, only: only, history: map[string][]int64{}}
	n := 0
	for raw, err := range client.Watch(c.Context(), f.interval) {
		if err != nil {
			return endOfWatch(c.Context(), f.live.advise(c.Context(), err))
		}
		var e adminmsg.Event
		if err := json.Unmarshal(raw, &e); err != nil {
			return fmt.Errorf("the service tells %s: %w", term.Printable(string(raw[:min(len(raw), 80)])), err)
		}
		if !w.next(&e) {
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

func (f *watchFlags) show(out io.Writer, w *liveView, e *adminmsg.Event, raw json.RawMessage) error {
	switch {
	case f.out.IsJSON():
		_, err := fmt.Fprintf(out, "%s\n", raw)
		return err
	case terminal(out):
		return w.screen(e, out, term.NewStyle(out))
	}
	return w.lines(e, out)
}

// liveView is what was told so far.
type liveView struct {
	interval time.Duration      // as it was asked for
	only     []string           // rules to show; none: all
	last     time.Time          // of the last event
	elapsed  time.Duration      // between the last two
	history  map[string][]int64 // by rule, what was asked in the last intervals

	intervals int // in the history
}

const (
	historyLength = 30
	screenRules   = 20 // with the lines around them they fit on a small terminal
)

// next tells whether the event is about an interval. The first is not: it says when the first interval begins.
func (w *liveView) next(e *adminmsg.Event) bool {
	first := w.last.IsZero()
	w.elapsed, w.last = e.T.Sub(w.last), e.T
	if first {
		return false
	}
	asked := make(map[string]int64)
	for _, r := range w.rules(e) {
		asked[r.name] = r.Allowed + r.Denied
		if w.history[r.name] == nil {
			w.history[r.name] = make([]int64, w.intervals)
		}
	}
	for name, h := range w.history {
		h = append(h, asked[name])
		w.history[name] = h[max(0, len(h)-historyLength):]
	}
	w.intervals = min(w.intervals+1, historyLength)
	return true
}

// wanted is one rule's counts of an interval.
type wanted struct {
	name string
	adminmsg.Counts
}

func (w *liveView) rules(e *adminmsg.Event) []wanted {
	var all []wanted
	for _, r := range e.Rules {
		if r.Counts == (adminmsg.Counts{}) {
			continue
		}
		if len(w.only) == 0 || slices.Contains(w.only, r.Name) {
			all = append(all, wanted{r.Name, r.Counts})
		}
	}
	return all
}

// perSecond is a rate: whole numbers if they are large.
func (w *liveView) perSecond(n int64) string {
	rate := float64(n) / max(w.elapsed.Seconds(), 1e-3)
	if rate < 10 && rate != float64(int64(rate)) {
		return fmt.Sprintf("%.1f/s", rate)
	}
	return term.Thousands(int64(rate+0.5)) + "/s"
}

// lines is for logs and pipes: a line for each rule that something happened to.
func (w *liveView) lines(e *adminmsg.Event, out io.Writer) error {
	all := w.rules(e)
	for _, r := range all {
		line := fmt.Sprintf("%s  %s  allowed %s  denied %s", clock(e.T), term.Printable(r.name), w.perSecond(r.Allowed), w.perSecond(r.Denied))
		if r.ShadowDenied > 0 {
			line += "  shadow " + w.perSecond(r.ShadowDenied)
		}
		if r.NearLimit > 0 {
			line += "  near " + w.perSecond(r.NearLimit)
		}
		if _, err := fmt.Fprintln(out, line); err != nil {
			return err
		}
	}
	if len(all) == 0 {
		_, err := fmt.Fprintf(out, "%s  nothing was asked\n", clock(e.T))
		return err
	}
	return nil
}

// screen draws a table over the last.
func (w *liveView) screen(e *adminmsg.Event, out io.Writer, s term.Style) error {
	all := w.rules(e)
	for name := range w.history { // also who is quiet now
		if !slices.ContainsFunc(all, func(r wanted) bool { return r.name == name }) {
			all = append(all, wanted{name: name})
		}
	}
	slices.SortStableFunc(all, func(a, b wanted) int {
		return cmp.Or(cmp.Compare(sum(w.history[b.name]), sum(w.history[a.name])), cmp.Compare(a.name, b.name))
	})
	var b strings.Builder
	b.WriteString(clearScreen)
	fmt.Fprintf(&b, "%s  %s\n\n", s.Bold(clock(e.T)), s.Faint("every "+w.interval.String()+", ctrl-C ends it"))
	rows := [][]string{{"rule", right("allowed", 10), right("denied", 10), right("shadow", 10), right("near", 10), "asked"}}
	for _, r := range all[:min(len(all), screenRules)] {
		rows = append(rows, []string{
			term.Printable(r.name), right(w.perSecond(r.Allowed), 10), right(w.perSecond(r.Denied), 10),
			right(w.perSecond(r.ShadowDenied), 10), right(w.perSecond(r.NearLimit), 10), sparkline(w.history[r.name]),
		})
	}
	_ = term.Table(&b, rows)
	if more := len(all) - screenRules; more > 0 {
		fmt.Fprintf(&b, "%s\n", s.Faint("and "+term.Count(more, "quieter rule")))
	}
	if len(e.Top) > 0 {
		top := &e.Top[0]
		fmt.Fprintf(&b, "\nmost denied: %s %s\n", bucketText(top.Rule, top.Key), s.Faint("("+term.Thousands(top.Count)+"; more with: sluice top)"))
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func sum(all []int64) (n int64) {
	for _, each := range all {
		n += each
	}
	return n
}

// sparkline draws numbers as blocks, the largest as a full one.
func sparkline(all []int64) string {
	if len(all) == 0 {
		return ""
	}
	blocks := []rune("▁▂▃▄▅▆▇█")
	most := max(1, slices.Max(all))
	out := make([]rune, len(all))
	for i, n := range all {
		out[i] = blocks[n*int64(len(blocks)-1)/most]
	}
	return string(out)
}
