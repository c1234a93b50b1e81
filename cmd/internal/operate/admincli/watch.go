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

// View is what a watch was told so far.
type View struct {
	interval time.Duration      // as it was asked for
	only     []string           // rules to show; none: all
	last     time.Time          // of the last event
	elapsed  time.Duration      // between the last two
	history  map[string][]int64 // by rule, what was asked in the last intervals

	intervals int // in the history
}

// NewView shows these rules, or all if there are none, at this interval.
func NewView(interval time.Duration, only []string) *View {
	return &View{interval: interval, only: only, history: map[string][]int64{}}
}

const (
	historyLength = 30
	screenRules   = 20 // with the lines around them they fit on a small terminal
)

// Next tells whether the event is about an interval. The first is not: it says when the first interval begins.
func (w *View) Next(e *adminmsg.Event) bool {
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

// perSecond is a rate: whole numbers if they are large.
func (w *View) perSecond(n int64) string {
	rate := float64(n) / max(w.elapsed.Seconds(), 1e-3)
	if rate < 10 && rate != float64(int64(rate)) {
		return fmt.Sprintf("%.1f/s", rate)
	}
	return term.Thousands(int64(rate+0.5)) + "/s"
}

// WriteLines is for logs and pipes: a line for each rule that something happened to.
func (w *View) WriteLines(e *adminmsg.Event, out io.Writer) error {
	all := w.rules(e)
	for _, r := range all {
		line := fmt.Sprintf("%s  %s  allowed %s  denied %s", term.Clock(e.T), term.Printable(r.name), w.perSecond(r.Allowed), w.perSecond(r.Denied))
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
		_, err := fmt.Fprintf(out, "%s  nothing was asked\n", term.Clock(e.T))
		return err
	}
	return nil
}

// WriteScreen draws a table over the last.
func (w *View) WriteScreen(e *adminmsg.Event, out io.Writer, s term.Style) error {
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
	b.WriteString(term.ClearScreen)
	fmt.Fprintf(&b, "%s  %s\n\n", s.Bold(term.Clock(e.T)), s.Faint("every "+w.interval.String()+", ctrl-C ends it"))
	rows := [][]string{{"rule", term.Right("allowed", 10), term.Right("denied", 10), term.Right("shadow", 10), term.Right("near", 10), "asked"}}
	for _, r := range all[:min(len(all), screenRules)] {
		rows = append(rows, []string{
			term.Printable(r.name), term.Right(w.perSecond(r.Allowed), 10), term.Right(w.perSecond(r.Denied), 10),
			term.Right(w.perSecond(r.ShadowDenied), 10), term.Right(w.perSecond(r.NearLimit), 10), sparkline(w.history[r.name]),
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
