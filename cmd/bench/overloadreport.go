package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// An overloadRow contains one server's medians, with the minimum and maximum of the kept share.
type overloadRow struct {
	Contender string
	Invalid   string `json:",omitempty"`
	overloadRun
	Kept, KeptMin, KeptMax float64
	KeptCPU                float64
	Grew                   float64
	Repeated               int
	floor                  string
}

func (r *runner) overloadRows(s *scenario, invalid map[string]bool) (rows []overloadRow) {
	for i := range r.contenders {
		c := &r.contenders[i]
		if !c.runs(s.name) {
			continue
		}
		all, why := r.valid(s, c, invalid)
		w := overloadRow{Contender: c.name, Invalid: why, floor: crowdNamed(c.name).floor}
		w.fill(all)
		rows = append(rows, w)
	}
	return rows
}

// fill sets the medians over the repetitions that were not disturbed, or over all if all were.
func (w *overloadRow) fill(all []*result) {
	var runs, calm []*overloadRun
	for _, res := range all {
		runs = append(runs, res.Overload)
		if !res.Overload.Disturbed {
			calm = append(calm, res.Overload)
		}
	}
	if len(runs) == 0 {
		return
	}
	disturbed := len(calm) == 0
	if !disturbed {
		runs = calm
	}
	list := func(figure func(*overloadRun) float64) (values []float64) {
		for _, o := range runs {
			values = append(values, figure(o))
		}
		return values
	}
	of := func(figure func(*overloadRun) float64) float64 { return median(list(figure)) }
	phase := func(which func(*overloadRun) *crowdPhase) crowdPhase {
		return crowdPhase{
			PerSecond: of(func(o *overloadRun) float64 { return which(o).PerSecond }),
			CPU:       of(func(o *overloadRun) float64 { return which(o).CPU }),
			CallerCPU: of(func(o *overloadRun) float64 { return which(o).CallerCPU }),
			Late:      of(func(o *overloadRun) float64 { return which(o).Late }),
			P99:       of(func(o *overloadRun) float64 { return which(o).P99 }),
		}
	}
	w.overloadRun = overloadRun{
		Callers:   int(of(func(o *overloadRun) float64 { return float64(o.Callers) })),
		Peak:      phase(func(o *overloadRun) *crowdPhase { return &o.Peak }),
		Crowd:     phase(func(o *overloadRun) *crowdPhase { return &o.Crowd }),
		Idle:      of(func(o *overloadRun) float64 { return o.Idle }),
		AtPeak:    of(func(o *overloadRun) float64 { return o.AtPeak }),
		Begin:     of(func(o *overloadRun) float64 { return o.Begin }),
		End:       of(func(o *overloadRun) float64 { return o.End }),
		After:     of(func(o *overloadRun) float64 { return o.After }),
		Disturbed: disturbed,
	}
	kept := list((*overloadRun).Kept)
	w.Kept, w.KeptMin, w.KeptMax = median(kept), slices.Min(kept), slices.Max(kept)
	w.KeptCPU, w.Grew, w.Repeated = of((*overloadRun).KeptCPU), of((*overloadRun).Grew), len(runs)
}

func writeOverload(w io.Writer, rows []overloadRow) {
	fmt.Fprintf(w, "\nOverload: %d times as many callers as at the peak; responses within %v count (-only %s)\n\n", crowdFactor, crowdPatient, overloaded)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(tw, "contender\tcallers\tresponses/s\toverload\tkept\tmin–max\tserver CPU\toverload\tkept\tcallers' CPU\toverload\tlate\tp99\t"+
		"MB idle\tpeak\toverload, start\tend\tafter\t\n")
	disturbed := false
	for _, r := range rows {
		if r.Invalid != "" {
			fmt.Fprintf(tw, "%s\tINVALID\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\n", r.Contender)
			continue
		}
		mark := ""
		if r.Disturbed {
			mark, disturbed = "~", true
		}
		fmt.Fprintf(tw, "%s\t%d\t%.0f\t%.0f\t%s%.2f\t%.2f–%.2f\t%.1f µs\t%.1f µs\t%.2f\t%.1f µs\t%.1f µs\t%.1f %%\t%.0f ms\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t\n",
			r.Contender, r.Callers, r.Peak.PerSecond, r.Crowd.PerSecond, mark, r.Kept, r.KeptMin, r.KeptMax, r.Peak.CPU, r.Crowd.CPU,
			r.KeptCPU, r.Peak.CallerCPU, r.Crowd.CallerCPU, 100*r.Crowd.Late, r.Crowd.P99, r.Idle, r.AtPeak, r.Begin, r.End, r.After)
	}
	tw.Flush()
	if disturbed {
		fmt.Fprint(w, "\n  ~ other processes used CPU time in every repetition: its ratios are meaningless, measure again\n")
	}
}

// overloadBars returns the targets under overload.
func (r *report) overloadBars() (bars []bar) {
	row := func(name string) overloadRow {
		for _, w := range r.Overload {
			if w.Contender == name {
				return w
			}
		}
		return overloadRow{}
	}
	for _, w := range r.Overload {
		if w.floor == "" || w.Repeated == 0 {
			continue
		}
		floor := row(w.floor)
		bars = append(bars,
			atLeast(w.Contender+", goodput under overload", overloaded, w.Kept, 0.9, "× peak").withdrawn(w.Disturbed),
			atLeast(w.Contender+", goodput per server CPU time", overloaded, w.KeptCPU, 0.9, "× peak").withdrawn(w.Disturbed),
			atMost(w.Contender+", memory during overload", overloaded, w.Grew, 1.1, "× start"))
		if floor.Kept > 0 {
			b := atLeast(w.Contender+", share kept vs "+w.floor, overloaded, w.Kept/floor.Kept, 0.9, "× its share")
			bars = append(bars, b.withdrawn(w.Disturbed || floor.Disturbed))
		}
	}
	return bars
}
