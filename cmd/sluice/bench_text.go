package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/loadgen"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// how says in what way the server was asked.
func (b *benched) how() string {
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

// write writes the result for people.
func (b *benched) write(out io.Writer) error {
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

func (b *benched) writeLatency(w io.Writer, s term.Style) {
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
func (b *benched) writeNotes(w io.Writer, s term.Style) {
	r := b.result
	if r.Behind() {
		fmt.Fprintf(w, "\n  %s\n", s.Yellow("The schedule was not kept: "+b.lateness()))
		fmt.Fprintf(w, "  Latencies count from when requests were due. If the server is not the cause, try more --callers than %d.\n", b.plan.Callers)
	}
	if r.Interrupted {
		fmt.Fprintf(w, "\n  %s\n", s.Yellow("Interrupted: these are the results so far."))
	}
}

func (b *benched) lateness() string {
	r := b.result
	text := fmt.Sprintf("%d of %s went out late, by up to %v", r.Late, term.Count(int(r.Requests()), "request"), loadgen.Round(r.LateMost))
	if r.Missed > 0 {
		text += fmt.Sprintf("; %d never", r.Missed)
	}
	return text + "."
}

// benchReport is the result for programs.
type benchReport struct {
	Target       string             `json:"target"`
	Protocol     string             `json:"protocol"`
	Loop         string             `json:"loop"` // open or closed
	Rate         float64            `json:"rate,omitempty"`
	Callers      int                `json:"callers"`
	Connections  int                `json:"connections,omitempty"`
	Pipeline     int                `json:"pipeline"`
	Keys         int64              `json:"keys"`
	Distribution string             `json:"distribution"`
	Begun        time.Time          `json:"begun"`
	Seconds      float64            `json:"elapsed_s"`
	Requests     int64              `json:"requests"`
	Allowed      int64              `json:"allowed"`
	Denied       int64              `json:"denied"`
	Errors       int64              `json:"errors"`
	CutOff       int64              `json:"cut_off"`
	PerSecond    float64            `json:"per_second"`
	Interrupted  bool               `json:"interrupted"`
	KeptSchedule bool               `json:"kept_schedule"`
	Late         int64              `json:"late"`
	LateMax      float64            `json:"late_max_ms"`
	NeverSent    int64              `json:"never_sent"`
	Latency      map[string]float64 `json:"latency_ms"`
	Histogram    []benchClass       `json:"histogram"`
	Answers      map[string]int64   `json:"answers"`
	Reasons      map[string]int64   `json:"without_answer"`
	Thresholds   []benchVerdict     `json:"thresholds"`
	Series       []benchPoint       `json:"series"`
}

type benchClass struct {
	From  float64 `json:"from_ms"`
	To    float64 `json:"to_ms"`
	Count int64   `json:"count"`
}

type benchVerdict struct {
	Threshold string `json:"threshold"`
	Kept      bool   `json:"kept"`
	Got       string `json:"got"`
}

type benchPoint struct {
	At      float64            `json:"at_s"`
	For     float64            `json:"for_s"`
	Allowed int64              `json:"allowed"`
	Denied  int64              `json:"denied"`
	Errors  int64              `json:"errors"`
	Latency map[string]float64 `json:"latency_ms"`
}

func (b *benched) json() *benchReport {
	r := b.result
	out := &benchReport{
		Target: b.name, Protocol: b.protocol, Loop: "closed", Rate: b.plan.Rate, Callers: b.plan.Callers, Connections: b.conns,
		Pipeline: max(1, b.plan.Pipeline), Keys: b.keys, Distribution: "uniform", Begun: r.Begun, Seconds: r.Elapsed.Seconds(),
		Requests: r.Requests(), Allowed: r.Sum.Allowed, Denied: r.Sum.Denied, Errors: r.Sum.Failed, CutOff: r.Cut,
		PerSecond: r.PerSecond(), Interrupted: r.Interrupted, KeptSchedule: !r.Behind(), Late: r.Late,
		LateMax: milliseconds(r.LateMost), NeverSent: r.Missed, Latency: latencyMap(&r.Sum.Latency),
		Answers: r.Codes, Reasons: r.Reasons, Thresholds: []benchVerdict{}, Histogram: []benchClass{}, Series: []benchPoint{},
	}
	if b.plan.Rate > 0 {
		out.Loop = "open"
	}
	if b.zipf {
		out.Distribution = "zipf"
	}
	for _, c := range r.Sum.Latency.Classes() {
		out.Histogram = append(out.Histogram, benchClass{milliseconds(c.From), milliseconds(c.To), c.Count})
	}
	for _, v := range b.verdicts {
		out.Thresholds = append(out.Thresholds, benchVerdict{v.Threshold.String(), v.Kept, v.Got})
	}
	for i := range r.Points {
		p := &r.Points[i]
		out.Series = append(out.Series, benchPoint{
			p.At.Seconds(), p.For.Seconds(), p.Allowed, p.Denied, p.Failed, latencyMap(&p.Latency),
		})
	}
	return out
}

func latencyMap(h *loadgen.Histogram) map[string]float64 {
	if h.Count() == 0 {
		return map[string]float64{}
	}
	out := map[string]float64{"min": milliseconds(h.Min()), "mean": milliseconds(h.Mean()), "max": milliseconds(h.Max())}
	for _, p := range latencies {
		out[fmt.Sprintf("p%v", p)] = milliseconds(h.Percentile(p))
	}
	return out
}

func milliseconds(d time.Duration) float64 { return float64(loadgen.Round(d)) / 1e6 }
