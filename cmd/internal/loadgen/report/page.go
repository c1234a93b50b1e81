// Package report writes the result of a load test as one HTML file with plots. The file uses no external resources and no
// scripts, so that it can be archived, mailed and opened anywhere. It supports light and dark mode.
package report

import (
	_ "embed" // the page's template
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/loadgen"
)

// A Page is the data of a report.
type Page struct {
	Target   string
	How      string // description of the load
	Version  string // of Sluice
	Result   *loadgen.Result
	Verdicts []loadgen.Verdict
}

//go:embed page.html
var pageHTML string

// pageTemplate escapes text of servers and users by its context. Plots contain only numbers and fixed text.
var pageTemplate = template.Must(template.New("page").Parse(pageHTML))

// Write writes the page.
func Write(w io.Writer, p Page) error {
	r := p.Result
	v := &view{Page: p, Begun: r.Begun.UTC().Format("2006-01-02 15:04:05 UTC"), Tiles: tiles(r)}
	for _, verdict := range p.Verdicts {
		v.Broken = v.Broken || !verdict.Kept
	}
	if r.Behind() {
		v.Notes = append(v.Notes, fmt.Sprintf("Requests were sent later than scheduled: %s late, by up to %v, and %s not sent. "+
			"Latencies are measured from the scheduled times.", number(r.Late), loadgen.Round(r.MaxLate), number(r.Missed)))
	}
	if r.Interrupted {
		v.Notes = append(v.Notes, "The test was interrupted: these are the results up to then.")
	}
	v.Counts = append(counted(r.Codes, ""), counted(r.Reasons, "no response: ")...)
	if h := &r.Sum.Latency; h.Count() > 0 {
		v.Percentiles = percentileRows(h)
		v.Plots = []figure{
			{"Responses per second", "Outcomes of requests over time.", legend(outcomes[:], r), throughput(r)},
			{"Latency over time", "Latency of requests by the time of their response, logarithmic scale.", lineLegend(), latencies(r)},
			{"Latency by percentile", "Maximum latency of each share of requests; each additional nine has the same width.", nil, percentiles(h)},
			{"Distribution of latency", "Number of requests by latency.", nil, distribution(h)},
		}
	}
	return pageTemplate.Execute(w, v)
}

// A view is the data of the template.
type view struct {
	Page
	Begun       string
	Broken      bool // a threshold failed
	Notes       []string
	Tiles       []tile
	Plots       []figure
	Percentiles [][2]string
	Counts      [][2]string
}

// A tile is a key figure.
type tile struct{ Name, Value, Note, Class string }

type figure struct {
	Title, About string
	Legend       []key
	SVG          template.HTML
}

// A key is an entry of a legend: a color and its meaning.
type key struct{ Class, Name string }

func tiles(r *loadgen.Result) []tile {
	share := func(n int64) string {
		if r.Requests() == 0 {
			return ""
		}
		return strconv.FormatFloat(100*float64(n)/float64(r.Requests()), 'f', 1, 64) + " %"
	}
	all := []tile{
		{"requests", number(r.Requests()), "in " + loadgen.Round(r.Elapsed).String(), ""},
		{"responses per second", number(int64(r.PerSecond() + 0.5)), "", ""},
		{"allowed", number(r.Sum.Allowed), share(r.Sum.Allowed), "allowed"},
		{"denied", number(r.Sum.Denied), share(r.Sum.Denied), "denied"},
		{"errors", number(r.Sum.Failed), share(r.Sum.Failed), ""},
	}
	if r.Sum.Failed > 0 {
		all[len(all)-1].Class = "errors"
	}
	if r.Cut > 0 {
		all = append(all, tile{"cut off", number(r.Cut), share(r.Cut), "errors"})
	}
	if h := &r.Sum.Latency; h.Count() > 0 {
		all = append(all,
			tile{"p50", loadgen.Round(h.Percentile(50)).String(), "median", ""},
			tile{"p99", loadgen.Round(h.Percentile(99)).String(), "max " + loadgen.Round(h.Max()).String(), ""})
	}
	return all
}

func percentileRows(h *loadgen.Histogram) [][2]string {
	rows := [][2]string{{"min", loadgen.Round(h.Min()).String()}, {"mean", loadgen.Round(h.Mean()).String()}}
	for _, p := range []float64{50, 75, 90, 95, 99, 99.9, 99.99} {
		rows = append(rows, [2]string{fmt.Sprintf("p%v", p), loadgen.Round(h.Percentile(p)).String()})
	}
	return append(rows, [2]string{"max", loadgen.Round(h.Max()).String()})
}

func counted(m map[string]int64, before string) (rows [][2]string) {
	for _, text := range slices.Sorted(maps.Keys(m)) {
		rows = append(rows, [2]string{before + text, number(m[text])})
	}
	return rows
}

// number formats 1234567 as 1 234 567, with narrow no-break spaces.
func number(n int64) string {
	digits := strconv.FormatInt(n, 10)
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteRune('\u202f')
		}
		b.WriteRune(d)
	}
	return b.String()
}

// span formats a duration for axes.
func span(d time.Duration) string {
	switch {
	case d >= time.Second:
		return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + " s"
	case d >= time.Millisecond:
		return strconv.FormatFloat(float64(d)/1e6, 'f', -1, 64) + " ms"
	case d >= time.Microsecond:
		return strconv.FormatFloat(float64(d)/1e3, 'f', -1, 64) + " µs"
	}
	return strconv.FormatInt(int64(d), 10) + " ns"
}
