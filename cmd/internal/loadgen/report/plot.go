package report

import (
	"fmt"
	"math"
	"strings"
)

// Sizes of a plot in SVG units. The page scales it.
const (
	plotWidth, plotHeight    = 640.0, 300.0
	left, right, top, bottom = 62.0, 30.0, 12.0, 34.0
	innerWidth, innerHeight  = plotWidth - left - right, plotHeight - top - bottom
	ground                   = top + innerHeight
	tickGap                  = 6.0
)

// An axis maps values to positions from 0 to 1.
type axis struct {
	low, high float64
	log       bool
	ticks     []tick
}

type tick struct {
	at   float64
	text string
}

// share returns the position of a value on the axis, from 0 to 1.
func (a *axis) share(v float64) float64 {
	low, high := a.low, a.high
	if a.log {
		v, low, high = math.Log(math.Max(v, a.low)), math.Log(low), math.Log(high)
	}
	if high <= low {
		return 0
	}
	return math.Min(1, math.Max(0, (v-low)/(high-low)))
}

// upTo returns an axis from 0 to a round number of at least the highest value, with ticks.
func upTo(highest float64, text func(float64) string) axis {
	step := roundUp(math.Max(highest, 1e-9) / 5)
	a := axis{}
	for v := 0.0; ; v += step {
		a.ticks = append(a.ticks, tick{v, text(v)})
		if v >= highest {
			a.high = v
			return a
		}
	}
}

// roundUp returns the next of 1, 2, 5, 10 …
func roundUp(v float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if v <= m*unit*(1+1e-9) {
			return m * unit
		}
	}
	return 10 * unit
}

// powers returns a logarithmic axis for a range of values, with ticks at 1, 2, 5 or only at 1 of each power of 10.
func powers(lowest, highest float64, text func(float64) string) axis {
	a := axis{log: true, low: roundDown(lowest), high: roundUp(highest)}
	if a.high <= a.low {
		a.high = roundUp(2 * a.low)
	}
	steps := []float64{1, 2, 5}
	if a.high/a.low > 2000 {
		steps = []float64{1}
	}
	for unit := math.Pow(10, math.Floor(math.Log10(a.low))); unit <= a.high; unit *= 10 {
		for _, m := range steps {
			if v := m * unit; v >= a.low*(1-1e-9) && v <= a.high*(1+1e-9) {
				a.ticks = append(a.ticks, tick{v, text(math.Round(v))})
			}
		}
	}
	return a
}

func roundDown(v float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{5, 2} {
		if v >= m*unit*(1-1e-9) {
			return m * unit
		}
	}
	return unit
}

// A plot is an SVG under construction.
type plot struct {
	strings.Builder
	x, y axis
}

func newPlot(label string, x, y axis) *plot {
	p := &plot{x: x, y: y}
	fmt.Fprintf(p, `<svg viewBox="0 0 %g %g" role="img" aria-label="%s">`, plotWidth, plotHeight, label)
	for _, t := range y.ticks {
		at := p.toY(t.at)
		fmt.Fprintf(p, `<line class="grid" x1="%g" x2="%g" y1="%.1f" y2="%.1f"/>`, left, left+innerWidth, at, at)
		fmt.Fprintf(p, `<text class="tick" x="%g" y="%.1f" text-anchor="end" dominant-baseline="middle">%s</text>`, left-tickGap, at, t.text)
	}
	for _, t := range x.ticks {
		at := p.toX(t.at)
		fmt.Fprintf(p, `<line class="mark" x1="%.1f" x2="%.1f" y1="%g" y2="%g"/>`, at, at, ground, ground+4)
		fmt.Fprintf(p, `<text class="tick" x="%.1f" y="%g" text-anchor="middle">%s</text>`, at, ground+18, t.text)
	}
	return p
}

func (p *plot) toX(v float64) float64 { return left + innerWidth*p.x.share(v) }
func (p *plot) toY(v float64) float64 { return ground - innerHeight*p.y.share(v) }

// A spot is a point in the coordinates of a plot.
type spot struct{ x, y float64 }

// path draws a path through spots, closed along back in reverse if it is not empty.
func (p *plot) path(class string, there, back []spot) {
	var d strings.Builder
	for i, s := range there {
		fmt.Fprintf(&d, "%c%.1f %.1f", "LM"[b2i(i == 0)], p.toX(s.x), p.toY(s.y))
	}
	for i := len(back) - 1; i >= 0; i-- {
		fmt.Fprintf(&d, "L%.1f %.1f", p.toX(back[i].x), p.toY(back[i].y))
	}
	if len(back) > 0 {
		d.WriteByte('Z')
	}
	fmt.Fprintf(p, `<path class="%s" d="%s"/>`, class, d.String())
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// tip adds a tooltip to the part of the plot between two x values.
func (p *plot) tip(from, to float64, text string) {
	x := p.toX(from)
	fmt.Fprintf(p, `<rect class="tip" x="%.1f" y="%g" width="%.1f" height="%g"><title>%s</title></rect>`,
		x, top, math.Max(1, p.toX(to)-x), innerHeight, text)
}

func (p *plot) done() string {
	fmt.Fprintf(p, `<line class="mark" x1="%g" x2="%g" y1="%g" y2="%g"/></svg>`, left, left+innerWidth, ground, ground)
	return p.String()
}
