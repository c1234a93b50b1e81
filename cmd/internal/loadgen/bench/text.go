package bench

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/sluiceproject/sluice/cmd/internal/loadgen"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// how says in what way the server was asked.
func (b *Measured) how() string {
	var s strings.Builder
	p := &b.plan
	if p.Rate > 0 {
		fmt.Fprintf(&s, "open loop, %v requests a second, at most %s at once", p.Rate, term.Count(p.Callers, "caller"))
	} else {
		fmt.Fprintf(&s, "closed loop, %s", term.Count(p.Callers, "caller"))
	}
	if b.conns > 0 {
		fmt.Fprintf(&s, " on %s", term.Count(b.conns, "connection"))
	}
	if p.Pipeline > 1 {
		fmt.Fprintf(&s, ", %d requests at a time", p.Pipeline)
	}
	fmt.Fprintf(&s, ", %s", term.Count(int(b.keys), "key"))
	if b.zipf {
		s.WriteString(" by Zipf's law")
	}
	return s.String()
}

// WriteText writes the result for people.
func (b *Measured) WriteText(out io.Writer) error {
	w, s, r := bufio.NewWriter(out), term.NewStyle(out), b.result
	fmt.Fprintf(w, "%s\n%s\n\n", s.Bold(b.name), b.how())
	all := r.Requests()
	fmt.Fprintf(w, "  requests  %10d  in %v, %.1f/s answered\n", all, loadgen.Round(r.Elapsed), r.PerSecond())
	for _, c := range []struct {
		name  string
		n     int64
		paint func(string) string
	}{{"allowed", r.Sum.Allowed, s.Green}, {"denied", r.Sum.Denied, s.Yellow}, {"errors", r.Sum.Failed, s.Red}, {"cut off", r.Cut, s.Red}} {
		if c.n > 0 || c.name != "cut off" {
			fmt.Fprintf(w, "  %-9s %10d  %s\n", c.name, c.n, bar(s, c.paint, c.n, all))
		}
	}
	fmt.Fprintln(w)
	b.writeLatency(w, s)
	writeCounts(w, "answers", r.Codes)
	writeCounts(w, "no answer", r.Reasons)
	b.writeNotes(w, s)
	if len(b.verdicts) > 0 {
		fmt.Fprintln(w)
	}
	for _, v := range b.verdicts {
		fmt.Fprintf(w, "  %s %-16s  %s\n", s.Mark(v.Kept), v.Threshold, v.Got)
	}
	return w.Flush()
}

// barWidth is how many letters wide the largest bar is.
const barWidth = 40

// bar is a share of all as a number and as a bar.
func bar(s term.Style, paint func(string) string, n, all int64) string {
	share := float64(n) / float64(max(1, all))
	return strings.TrimRight(fmt.Sprintf("%5.1f %%  %s", 100*share, paint(strings.Repeat("#", int(share*barWidth+0.5)))), " ")
}

// latencies are what is told of them.
var latencies = []float64{50, 90, 95, 99, 99.9}

func (b *Measured) writeLatency(w io.Writer, s term.Style) {
	h := &b.result.Sum.Latency
	if h.Count() == 0 {
		return
	}
	fmt.Fprintf(w, "  latency   min %v  mean %v", loadgen.Round(h.Min()), loadgen.Round(h.Mean()))
	for _, p := range latencies {
		fmt.Fprintf(w, "  p%v %v", p, loadgen.Round(h.Percentile(p)))
	}
	fmt.Fprintf(w, "  max %v\n", loadgen.Round(h.Max()))
	if b.plan.Rate > 0 {
		fmt.Fprintln(w, s.Faint("            from when a request was due"))
	}
	fmt.Fprintln(w)
	none := func(text string) string { return text }
	for _, c := range h.Classes() {
		fmt.Fprintf(w, "  %8v – %-8v %9d  %s\n", c.From, c.To, c.Count, bar(s, none, c.Count, h.Count()))
	}
	fmt.Fprintln(w)
}

// writeCounts writes what was counted, most first.
func writeCounts(w io.Writer, name string, counts map[string]int64) {
	texts := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	for i, text := range texts {
		if i > 0 {
			name = ""
		}
		fmt.Fprintf(w, "  %-9s %10d  %s\n", name, counts[text], term.Printable(text))
	}
}

// writeNotes writes what one must know to read the rest.
func (b *Measured) writeNotes(w io.Writer, s term.Style) {
	r := b.result
	if r.Behind() {
		fmt.Fprintf(w, "\n  %s\n", s.Yellow("The schedule was not kept: "+b.lateness()))
		fmt.Fprintf(w, "  Latencies count from when requests were due. If the server is not the cause, try more --callers than %d.\n", b.plan.Callers)
	}
	if r.Interrupted {
		fmt.Fprintf(w, "\n  %s\n", s.Yellow("Interrupted: these are the results so far."))
	}
}

func (b *Measured) lateness() string {
	r := b.result
	text := fmt.Sprintf("%d of %s went out late, by up to %v", r.Late, term.Count(int(r.Requests()), "request"), loadgen.Round(r.MaxLate))
	if r.Missed > 0 {
		text += fmt.Sprintf("; %d never", r.Missed)
	}
	return text + "."
}
