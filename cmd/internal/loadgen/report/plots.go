package report

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/loadgen"
)

// An outcome is a possible outcome of a request.
type outcome struct {
	class string
	of    func(*loadgen.Point) int64
}

var outcomes = [...]outcome{
	{"allowed", func(p *loadgen.Point) int64 { return p.Allowed }},
	{"denied", func(p *loadgen.Point) int64 { return p.Denied }},
	{"errors", func(p *loadgen.Point) int64 { return p.Failed }},
}

func legend(all []outcome, r *loadgen.Result) (keys []key) {
	for _, o := range all {
		if o.of(&r.Sum) > 0 {
			keys = append(keys, key{o.class, o.class})
		}
	}
	return keys
}

// A line is a percentile over time.
type line struct {
	class, name string
	of          func(*loadgen.Histogram) time.Duration
}

func percentile(p float64) func(*loadgen.Histogram) time.Duration {
	return func(h *loadgen.Histogram) time.Duration { return h.Percentile(p) }
}

var lines = [...]line{
	{"max", "max", (*loadgen.Histogram).Max},
	{"p99", "p99", percentile(99)},
	{"p90", "p90", percentile(90)},
	{"p50", "p50", percentile(50)},
}

func lineLegend() (keys []key) {
	for _, l := range lines {
		keys = append(keys, key{l.class, l.name})
	}
	return keys
}

// perSecond returns n per second of the point.
func perSecond(n int64, p *loadgen.Point) float64 {
	if p.For <= 0 {
		return 0
	}
	return float64(n) / p.For.Seconds()
}

func middle(p *loadgen.Point) float64 { return (p.At - p.For/2).Seconds() }

// timeAxis returns an axis from the start to the end of a run.
func timeAxis(r *loadgen.Result) axis {
	end := 0.0
	if n := len(r.Points); n > 0 {
		end = r.Points[n-1].At.Seconds()
	}
	a := upTo(end, func(s float64) string { return strconv.FormatFloat(math.Round(s*1e6)/1e6, 'f', -1, 64) + " s" })
	a.high = math.Max(end, 1e-9)
	if n := len(a.ticks); a.ticks[n-1].at > a.high {
		a.ticks = a.ticks[:n-1]
	}
	return a
}

// throughput draws stacked areas.
func throughput(r *loadgen.Result) template.HTML {
	most := 0.0
	for i := range r.Points {
		p := &r.Points[i]
		most = math.Max(most, perSecond(p.Allowed+p.Denied+p.Failed, p))
	}
	p := newPlot("responses per second over time", timeAxis(r), upTo(most, thousands))
	below := make([]int64, len(r.Points))
	for _, o := range outcomes {
		if o.of(&r.Sum) == 0 {
			continue
		}
		var there, back []spot
		for i := range r.Points {
			at := &r.Points[i]
			back = append(back, spot{middle(at), perSecond(below[i], at)})
			below[i] += o.of(at)
			there = append(there, spot{middle(at), perSecond(below[i], at)})
		}
		p.path("area "+o.class, there, back)
	}
	for i := range r.Points {
		at := &r.Points[i]
		text := loadgen.Round(at.At).String()
		for _, o := range outcomes {
			text += fmt.Sprintf(", %.0f/s %s", perSecond(o.of(at), at), o.class)
		}
		p.tip((at.At - at.For).Seconds(), at.At.Seconds(), text)
	}
	return template.HTML(p.done())
}

func thousands(v float64) string {
	if v >= 10_000 {
		return strconv.FormatFloat(math.Round(v)/1000, 'f', -1, 64) + " k"
	}
	return strconv.FormatFloat(math.Round(v*1e6)/1e6, 'f', -1, 64)
}

func nanos(v float64) string { return span(time.Duration(v)) }

// latencies draws lines of percentiles, with gaps where there were no responses.
func latencies(r *loadgen.Result) template.HTML {
	lowest := r.Sum.Latency.Max()
	for i := range r.Points {
		if h := &r.Points[i].Latency; h.Count() > 0 {
			lowest = min(lowest, h.Percentile(50))
		}
	}
	p := newPlot("latency over time", timeAxis(r), powers(math.Max(1, float64(lowest)), math.Max(1, float64(r.Sum.Latency.Max())), nanos))
	for _, l := range lines {
		var part []spot
		flush := func() {
			if len(part) == 1 { // a single spot would not be visible
				part = append(part, spot{part[0].x + p.x.high/200, part[0].y})
			}
			if len(part) > 0 {
				p.path("line "+l.class, part, nil)
			}
			part = nil
		}
		for i := range r.Points {
			at := &r.Points[i]
			if at.Latency.Count() == 0 {
				flush()
				continue
			}
			part = append(part, spot{middle(at), float64(l.of(&at.Latency))})
		}
		flush()
	}
	for i := range r.Points {
		at := &r.Points[i]
		text := loadgen.Round(at.At).String() + ": no responses"
		if at.Latency.Count() > 0 {
			text = loadgen.Round(at.At).String()
			for _, l := range lines {
				text += fmt.Sprintf(", %s %v", l.name, loadgen.Round(l.of(&at.Latency)))
			}
		}
		p.tip((at.At - at.For).Seconds(), at.At.Seconds(), text)
	}
	return template.HTML(p.done())
}

// percentiles draws the latency by percentile, on a scale on which each additional nine has the same width, up to the
// percentile that the number of requests supports.
func percentiles(h *loadgen.Histogram) template.HTML {
	x := axis{log: true, low: 1, high: math.Max(10, float64(h.Count()))}
	for _, t := range []tick{{1, "0"}, {2, "50 %"}, {10, "90 %"}, {100, "99 %"}, {1e3, "99.9 %"}, {1e4, "99.99 %"}, {1e5, "99.999 %"}, {1e6, "99.9999 %"}} {
		if t.at <= x.high {
			x.ticks = append(x.ticks, t)
		}
	}
	p := newPlot("latency by percentile", x, powers(math.Max(1, float64(h.Min())), math.Max(1, float64(h.Max())), nanos))
	var there, back []spot
	const steps = 160
	floor := p.y.low
	for i := range steps + 1 {
		odds := math.Pow(x.high, float64(i)/steps)
		d := h.Percentile(100 * (1 - 1/odds))
		if i == steps {
			d = h.Max()
		}
		there, back = append(there, spot{odds, float64(d)}), append(back, spot{odds, floor})
	}
	p.path("area latency", there, back)
	p.path("line latency", there, nil)
	for i := range there[:steps] {
		p.tip(there[i].x, there[i+1].x, fmt.Sprintf("%.*f %% took at most %v",
			max(1, int(math.Log10(there[i].x))), 100*(1-1/there[i].x), loadgen.Round(time.Duration(there[i].y))))
	}
	return template.HTML(p.done())
}

// distribution draws a bar for each class of latencies.
func distribution(h *loadgen.Histogram) template.HTML {
	classes := h.Classes()
	most := int64(0)
	for _, c := range classes {
		most = max(most, c.Count)
	}
	y := upTo(100*float64(most)/float64(h.Count()), func(v float64) string { return strconv.FormatFloat(math.Round(v*100)/100, 'f', -1, 64) + " %" })
	x := axis{high: float64(len(classes))}
	every := 1 + len(classes)/10
	for i, c := range classes {
		if i%every == 0 {
			x.ticks = append(x.ticks, tick{float64(i), span(c.From)})
		}
	}
	if len(classes)%every == 0 {
		x.ticks = append(x.ticks, tick{float64(len(classes)), span(classes[len(classes)-1].To)})
	}
	p := newPlot("distribution of latency", x, y)
	for i, c := range classes {
		share := 100 * float64(c.Count) / float64(h.Count())
		from, to, height := p.toX(float64(i)), p.toX(float64(i+1)), p.toY(share)
		if c.Count > 0 {
			height = math.Min(height, ground-1) // so that small values are visible
		}
		fmt.Fprintf(p, `<rect class="bar latency" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`, from+1, height, math.Max(1, to-from-2), ground-height)
		p.tip(float64(i), float64(i+1), fmt.Sprintf("%s to %s: %s requests, %.2f %%", span(c.From), span(c.To), number(c.Count), share))
	}
	return template.HTML(p.done())
}
