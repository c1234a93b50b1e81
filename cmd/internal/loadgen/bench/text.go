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

// how describes the load.
func (b *Measured) how() string {
	var s strings.Builder
	p := &b.plan
	if p.Rate > 0 {
		fmt.Fprintf(&s, "open loop, %v requests/s, concurrency at most %d", p.Rate, p.Callers)
	} else {
		fmt.Fprintf(&s, "closed loop, concurrency %d", p.Callers)
	}
	if b.conns > 0 {
		fmt.Fprintf(&s, ", %s", term.Count(b.conns, "connection"))
	}
	if p.Pipeline > 1 {
		fmt.Fprintf(&s, ", pipeline of %d requests", p.Pipeline)
	}
	fmt.Fprintf(&s, ", %s", term.Count(int(b.keys), "key"))
	if b.zipf {
		s.WriteString(" by Zipf's law")
	}
	return s.String()
}

// WriteText writes the result as text.
func (b *Measured) WriteText(out io.Writer) error {
	w, s, r := bufio.NewWriter(out), term.NewStyle(out), b.result
	fmt.Fprintf(w, "%s\n%s\n\n", s.Bold(b.name), b.how())
	all := r.Requests()
	fmt.Fprintf(w, "  requests  %10d  in %v, %.1f responses/s\n", all, loadgen.Round(r.Elapsed), r.PerSecond())
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
	writeCounts(w, "responses", r.Codes)
	writeCounts(w, "failures", r.Reasons)
	b.writeNotes(w, s)
	if len(b.verdicts) > 0 {
		fmt.Fprintln(w)
	}
	for _, v := range b.verdicts {
		fmt.Fprintf(w, "  %s %-16s  %s\n", s.Mark(v.Kept), v.Threshold, v.Got)
	}
	return w.Flush()
}

// barWidth is the width of the largest bar in characters.
const barWidth = 40

// bar formats the share n/all as a percentage and a bar.
func bar(s term.Style, paint func(string) string, n, all int64) string {
	share := float64(n) / float64(max(1, all))
	return strings.TrimRight(fmt.Sprintf("%5.1f %%  %s", 100*share, paint(strings.Repeat("#", int(share*barWidth+0.5)))), " ")
}

// latencies are the percentiles in reports.
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
		fmt.Fprintln(w, s.Faint("            from the scheduled time of each request"))
	}
	fmt.Fprintln(w)
	none := func(text string) string { return text }
	for _, c := range h.Classes() {
		fmt.Fprintf(w, "  %8v – %-8v %9d  %s\n", c.From, c.To, c.Count, bar(s, none, c.Count, h.Count()))
	}
	fmt.Fprintln(w)
}

// writeCounts writes counts, highest first.
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

// writeNotes writes the conditions that affect the interpretation of the result.
func (b *Measured) writeNotes(w io.Writer, s term.Style) {
	r := b.result
	if r.Behind() {
		fmt.Fprintf(w, "\n  %s\n", s.Yellow("Requests were sent later than scheduled: "+b.lateness()))
		fmt.Fprintf(w, "  Latencies are measured from the scheduled times. If the server is not the cause, use a --concurrency above %d.\n", b.plan.Callers)
	}
	if r.Interrupted {
		fmt.Fprintf(w, "\n  %s\n", s.Yellow("Interrupted: these are the results so far."))
	}
}

func (b *Measured) lateness() string {
	r := b.result
	text := fmt.Sprintf("%d of %s late, by up to %v", r.Late, term.Count(int(r.Requests()), "request"), loadgen.Round(r.MaxLate))
	if r.Missed > 0 {
		text += fmt.Sprintf("; %d not sent", r.Missed)
	}
	return text + "."
}
