package admincli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// View formats the events of a watch. It keeps the history of each rule for its sparkline.
type View struct {
	interval time.Duration      // requested interval
	only     []string           // rules to show; empty means all
	last     time.Time          // time of the last event
	elapsed  time.Duration      // between the last two events
	history  map[string][]int64 // by rule: requests in the last intervals

	intervals int // length of the history
}

// NewView returns a view of the rules in only, or of all rules if it is empty.
func NewView(interval time.Duration, only []string) *View {
	return &View{interval: interval, only: only, history: map[string][]int64{}}
}

const (
	historyLength = 30
	screenRules   = 20 // with the other lines they fit on a small terminal
)

// Next adds an event and reports whether it is to be shown. The first is not: its time is the start of the first interval.
func (w *View) Next(e *adminmsg.Event) bool {
	first := w.last.IsZero()
	w.elapsed, w.last = e.Time.Sub(w.last), e.Time
	if first {
		return false
	}
	requests := make(map[string]int64)
	for _, r := range w.rules(e) {
		requests[r.name] = r.Allowed + r.Denied
		if w.history[r.name] == nil {
			w.history[r.name] = make([]int64, w.intervals)
		}
	}
	for name, h := range w.history {
		h = append(h, requests[name])
		w.history[name] = h[max(0, len(h)-historyLength):]
	}
	w.intervals = min(w.intervals+1, historyLength)
	return true
}

// wanted is the decisions of a shown rule in an interval.
type wanted struct {
	name string
	adminmsg.Counts
}

func (w *View) rules(e *adminmsg.Event) []wanted {
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

// perSecond formats n per elapsed time, with a fraction if it is below 10/s.
func (w *View) perSecond(n int64) string {
	rate := float64(n) / max(w.elapsed.Seconds(), 1e-3)
	if rate < 10 && rate != float64(int64(rate)) {
		return fmt.Sprintf("%.1f/s", rate)
	}
	return term.Thousands(int64(rate+0.5)) + "/s"
}

// WriteLines writes a line for each rule with decisions in the interval, for logs and pipes.
func (w *View) WriteLines(e *adminmsg.Event, out io.Writer) error {
	all := w.rules(e)
	for _, r := range all {
		line := fmt.Sprintf("%s  %s  allowed %s  denied %s", term.Clock(e.Time), term.Printable(r.name), w.perSecond(r.Allowed), w.perSecond(r.Denied))
		if r.ShadowDenied > 0 {
			line += "  shadow-denied " + w.perSecond(r.ShadowDenied)
		}
		if r.NearLimit > 0 {
			line += "  near limit " + w.perSecond(r.NearLimit)
		}
		if _, err := fmt.Fprintln(out, line); err != nil {
			return err
		}
	}
	if len(all) == 0 {
		_, err := fmt.Fprintf(out, "%s  no requests\n", term.Clock(e.Time))
		return err
	}
	return nil
}

// WriteScreen clears the screen and writes a table, busiest rules first.
func (w *View) WriteScreen(e *adminmsg.Event, out io.Writer, s term.Style) error {
	all := w.rules(e)
	for name := range w.history { // rules without decisions in this interval too
		if !slices.ContainsFunc(all, func(r wanted) bool { return r.name == name }) {
			all = append(all, wanted{name: name})
		}
	}
	slices.SortStableFunc(all, func(a, b wanted) int {
		return cmp.Or(cmp.Compare(sum(w.history[b.name]), sum(w.history[a.name])), cmp.Compare(a.name, b.name))
	})
	var b strings.Builder
	b.WriteString(term.ClearScreen)
	fmt.Fprintf(&b, "%s  %s\n\n", s.Bold(term.Clock(e.Time)), s.Faint("every "+w.interval.String()+", ctrl-C to stop"))
	rows := [][]string{{"rule", term.Right("allowed", 10), term.Right("denied", 10), term.Right("shadow-denied", 13), term.Right("near limit", 10), "requests"}}
	for _, r := range all[:min(len(all), screenRules)] {
		rows = append(rows, []string{
			term.Printable(r.name), term.Right(w.perSecond(r.Allowed), 10), term.Right(w.perSecond(r.Denied), 10),
			term.Right(w.perSecond(r.ShadowDenied), 13), term.Right(w.perSecond(r.NearLimit), 10), sparkline(w.history[r.name]),
		})
	}
	_ = term.Table(&b, rows)
	if more := len(all) - screenRules; more > 0 {
		fmt.Fprintf(&b, "%s\n", s.Faint("and "+term.Count(more, "more rule")+" with fewer requests"))
	}
	if len(e.Top) > 0 {
		top := &e.Top[0]
		fmt.Fprintf(&b, "\nmost denied: %s %s\n", bucketText(top.Rule, top.Key), s.Faint("("+term.Thousands(top.Count)+" times; sluice top shows more keys)"))
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

// sparkline draws numbers as blocks, the largest as a full block.
func sparkline(all []int64) string {
	if len(all) == 0 {
		return ""
	}
	blocks := []rune("▁▂▃▄▅▆▇█")
	largest := max(1, slices.Max(all))
	out := make([]rune, len(all))
	for i, n := range all {
		out[i] = blocks[n*int64(len(blocks)-1)/largest]
	}
	return string(out)
}
