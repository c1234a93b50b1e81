package main

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// storeRow is one store's medians with one algorithm.
type storeRow struct {
	Contender string
	Invalid   string `json:",omitempty"`
	storeCost
	MinPerSecond, MaxPerSecond float64
}

// storeRows returns the medians over the repetitions.
func (r *runner) storeRows(s *scenario, invalid map[string]bool) (rows []storeRow) {
	for i := range r.contenders {
		c := &r.contenders[i]
		if !c.runs(s.name) {
			continue
		}
		all, why := r.valid(s, c, invalid)
		if len(all) == 0 {
			rows = append(rows, storeRow{Contender: c.name, Invalid: why})
			continue
		}
		for a := range storeAlgorithms {
			rows = append(rows, newStoreRow(c.name, a, all))
		}
	}
	return rows
}

func newStoreRow(name string, algorithm int, all []*result) storeRow {
	w := storeRow{Contender: name}
	w.Algorithm = all[0].Stores[algorithm].Algorithm
	of := func(figure func(*storeCost) float64) (values []float64) {
		for _, res := range all {
			values = append(values, figure(&res.Stores[algorithm]))
		}
		return values
	}
	speeds := of(func(c *storeCost) float64 { return c.PerSecond })
	w.PerSecond = median(speeds)
	w.MinPerSecond, w.MaxPerSecond = lowHigh(speeds)
	w.P50 = median(of(func(c *storeCost) float64 { return c.P50 }))
	w.P99 = median(of(func(c *storeCost) float64 { return c.P99 }))
	w.Bytes = median(of(func(c *storeCost) float64 { return c.Bytes }))
	_, w.Peak = lowHigh(of(func(c *storeCost) float64 { return c.Peak }))
	w.Used = median(of(func(c *storeCost) float64 { return c.Used }))
	for _, res := range all {
		w.Disturbed = w.Disturbed || res.Stores[algorithm].Disturbed
	}
	return w
}

func lowHigh(values []float64) (low, high float64) {
	low, high = values[0], values[0]
	for _, v := range values[1:] {
		low, high = min(low, v), max(high, v)
	}
	return low, high
}

func writeStores(w io.Writer, rows []storeRow) {
	fmt.Fprintf(w, "\nStores (-only %s): latency with one caller, decisions/s with %d; %d instances offered 2 × %d/s for %v\n\n",
		storeRun, storeCallers, storeInstances, storeRate, storeTime)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(tw, "store\talgorithm\tp50 µs\tp99 µs\tdecisions/s\tmin–max\tB/key\tbusiest window\tused\t\n")
	disturbed := false
	for _, r := range rows {
		if r.Invalid != "" {
			fmt.Fprintf(tw, "%s\tINVALID\t\t\t\t\t\t\t\t\n", r.Contender)
			continue
		}
		mark := ""
		if r.Disturbed {
			mark, disturbed = "~", true
		}
		fmt.Fprintf(tw, "%s\t%s\t%.1f\t%.1f\t%s%.0f\t%.0f–%.0f\t%.0f\t%.0f %%\t%.0f %%\t\n", r.Contender, r.Algorithm, r.P50, r.P99,
			mark, r.PerSecond, r.MinPerSecond, r.MaxPerSecond, r.Bytes, 100*r.Peak, 100*r.Used)
	}
	tw.Flush()
	fmt.Fprint(w, "\n  busiest window: requests admitted in the busiest second, of the limit, the highest of the repetitions;"+
		" used: requests admitted, of limit × time\n")
	if disturbed {
		fmt.Fprint(w, "  ~ other processes took processor time in a repetition: measure again\n")
	}
}
