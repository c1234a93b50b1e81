package main

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// write prints the report as text.
func (r *report) write(out io.Writer) error {
	w := bufio.NewWriter(out)
	fmt.Fprintf(w, "%s on %s, %d cpus, %.0f s. Only ratios within one run are meaningful; differences below 15 %% are noise.\n",
		r.Go, r.System, r.CPUs, r.Seconds)
	for i := range r.Timings {
		r.Timings[i].write(w)
	}
	for i := range r.Memory {
		r.Memory[i].write(w)
	}
	if len(r.HTTP) > 0 {
		writeHTTP(w, r.HTTP)
	}
	if len(r.Rules) > 0 {
		writeRules(w, r.Rules)
	}
	for i := range r.Redis {
		r.Redis[i].write(w)
	}
	if len(r.RedisMemory) > 0 {
		writeRemoteMemory(w, r.RedisMemory)
	}
	if len(r.Lease) > 0 {
		writeLeases(w, r.Lease)
	}
	if len(r.Stores) > 0 {
		writeStores(w, r.Stores)
	}
	for i := range r.Services {
		r.Services[i].write(w)
	}
	for i := range r.RESP {
		r.RESP[i].write(w)
	}
	for i := range r.Gateway {
		r.Gateway[i].write(w)
	}
	if len(r.ServiceMemory) > 0 {
		writeServiceMemory(w, r.ServiceMemory)
	}
	if len(r.Overload) > 0 {
		writeOverload(w, r.Overload)
	}
	if r.Simulate != nil {
		writeSimulate(w, r.Simulate)
	}
	fmt.Fprint(w, "\nTargets for Sluice, from the medians above\n\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, b := range r.Bars {
		if b.Of == "" && b.Got == "" || b.Of != "" && !r.ran(b.Of) {
			continue
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\n", b.Name, b.Want, b.Got, b.Verdict)
	}
	t.Flush()

	fmt.Fprint(w, "\nContenders, and the clock that each reads per decision\n\n")
	for _, c := range r.Contenders {
		fmt.Fprintf(t, "  %s\t%s\t%s\n", c.Name, c.Clock, c.About)
	}
	t.Flush()
	for _, n := range r.Notes {
		fmt.Fprintf(w, "\n%s\n", n)
	}
	if len(r.Invalid) > 0 {
		fmt.Fprint(w, "\nINVALID measurements\n\n")
		for _, why := range r.Invalid {
			fmt.Fprintf(w, "  %s\n", why)
		}
	}
	return w.Flush()
}

// ran reports whether a scenario was part of the run.
func (r *report) ran(scenario string) bool {
	return scenario == overloaded && len(r.Overload) > 0 || scenario == simulated && r.Simulate != nil || scenario == httpServe && len(r.HTTP) > 0 || scenario == ruleMatch && len(r.Rules) > 0 ||
		scenario == redisLoad && len(r.Redis) > 0 || scenario == redisMem && len(r.RedisMemory) > 0 ||
		scenario == leased && len(r.Lease) > 0 || scenario == storeRun && len(r.Stores) > 0 ||
		scenario == serviceRun && len(r.Services) > 0 || scenario == respRun && len(r.RESP) > 0 || scenario == gatewayRun && len(r.Gateway) > 0 || scenario == serviceMem && len(r.ServiceMemory) > 0 ||
		slices.ContainsFunc(r.Timings, func(t timing) bool { return t.Scenario == scenario }) ||
		slices.ContainsFunc(r.Memory, func(t memoryTable) bool { return t.Scenario == scenario })
}

func (t *timing) write(w io.Writer) {
	fmt.Fprintf(w, "\n%s, GOMAXPROCS %d (-only %s; %d decisions, %d distinct keys)\n\n", t.Title, t.Procs, t.Scenario, t.Ops, t.Distinct)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(tw, "contender\tns/op\tmin–max\t× floor\t× Sluice\tallocs/op\t\n")
	disturbed := false
	for _, r := range t.Rows {
		if r.Invalid != "" {
			fmt.Fprintf(tw, "%s\tINVALID\t\t\t\t\t\n", r.Contender)
			continue
		}
		mark := ""
		if r.Disturbed {
			mark, disturbed = "~", true
		}
		fmt.Fprintf(tw, "%s\t%s%.1f\t%.1f–%.1f\t%s\t%s\t%s\t\n",
			r.Contender, mark, r.Ns, r.Min, r.Max, factor(r.PerFloor), factor(r.PerSluice), allocs(r.Allocs))
	}
	tw.Flush()
	if disturbed {
		fmt.Fprint(w, "\n  ~ other processes used CPU time in every repetition: its ratios are meaningless, measure again\n")
	}
}

func (t *memoryTable) write(w io.Writer) {
	fmt.Fprintf(w, "\n%s (-only %s)\n\n", t.Title, t.Scenario)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	gc := t.Scenario == mem5m
	fmt.Fprint(tw, "contender\tresident B/key\tGo heap B/key\t")
	if gc {
		fmt.Fprint(tw, "full GC\t")
	}
	fmt.Fprintln(tw)
	for _, r := range t.Rows {
		switch {
		case r.Invalid != "":
			fmt.Fprintf(tw, "%s\tINVALID\t\t", r.Contender)
		default:
			fmt.Fprintf(tw, "%s\t%.1f\t%.1f\t", r.Contender, r.Resident, r.Heap)
		}
		if gc {
			fmt.Fprintf(tw, "%s\t", milliseconds(r.GC))
		}
		fmt.Fprintln(tw)
	}
	tw.Flush()
}

func writeHTTP(w io.Writer, rows []httpRow) {
	fmt.Fprintf(w, "\nHTTP: the handler alone, and a whole server over loopback (-only %s)\n\n", httpServe)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(tw, "contender\thandler ns\tallocs\tserver CPU/request\thandler − bare, of a bare request\t\n")
	for _, r := range rows {
		if r.Invalid != "" {
			fmt.Fprintf(tw, "%s\tINVALID\t\t\t\t\n", r.Contender)
			continue
		}
		fmt.Fprintf(tw, "%s\t%.0f\t%s\t%.1f µs\t%.1f %%\t\n",
			r.Contender, r.HandlerNs, allocs(r.Allocs), r.ServerNs/1000, 100*r.Share)
	}
	tw.Flush()
}

func writeRules(w io.Writer, rows []ruleCost) {
	fmt.Fprintf(w, "\nMatching the rules of a request, one cpu (-only %s)\n\n", ruleMatch)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(tw, "rules differ in\tns among %d\tns among %d\tratio\tallocs\t\n", fewRules, manyRules)
	for _, r := range rows {
		fmt.Fprintf(tw, "%s\t%.0f\t%.0f\t%.2f\t%s\t\n", r.Shape, r.Few, r.Many, r.Many/r.Few, allocs(r.Allocs))
	}
	tw.Flush()
}

func milliseconds(d time.Duration) string { return fmt.Sprintf("%.2f ms", d.Seconds()*1000) }

func factor(x float64) string {
	if x == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", x)
}

func allocs(x float64) string {
	if x < noAllocs {
		return "0"
	}
	return strings.TrimRight(strings.TrimRight(fmt.Sprintf("%.3f", x), "0"), ".")
}
