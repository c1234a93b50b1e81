package main

import (
	"fmt"
	"slices"
	"strings"
)

// A bar is a target that Sluice must reach, as a ratio within this run where possible.
type bar struct {
	Name    string
	Of      string // scenario
	Want    string
	Got     string
	Verdict string // pass, miss, disturbed, or not measured
}

func (r *report) timing(scenario string, procs int) *timing {
	for i := range r.Timings {
		if r.Timings[i].Scenario == scenario && r.Timings[i].Procs == procs {
			return &r.Timings[i]
		}
	}
	return &timing{Scenario: scenario}
}

// ratio returns one contender's time over another's, or 0 if either is missing.
func (t *timing) ratio(of, to string) float64 {
	a, b := t.ns(of), t.ns(to)
	if a == 0 || b == 0 {
		return 0
	}
	return a / b
}

// bestPeer returns the fastest peer that supports keys.
func (t *timing) bestPeer() (name string, ns float64) {
	for i := range t.Rows {
		w := &t.Rows[i]
		if w.role == rolePeer && w.Contender != "failsafe" && w.Ns > 0 && (ns == 0 || w.Ns < ns) {
			name, ns = w.Contender, w.Ns
		}
	}
	return name, ns
}

func atMost(name, of string, got, most float64, unit string) bar {
	b := bar{Name: name, Of: of, Want: fmt.Sprintf("≤ %g%s", most, unit), Verdict: "not measured"}
	if got != 0 {
		b.Got = fmt.Sprintf("%.2f%s", got, unit)
		b.Verdict = verdict(got <= most)
	}
	return b
}

// unless withdraws the verdict if other processes disturbed one of the compared contenders.
func (b bar) unless(t *timing, contenders ...string) bar {
	for _, w := range t.Rows {
		if w.Disturbed && b.Got != "" && slices.Contains(contenders, w.Contender) {
			b.Verdict = "disturbed"
		}
	}
	return b
}

func verdict(ok bool) string {
	if ok {
		return "pass"
	}
	return "miss"
}

// fasterThanPeers compares Sluice's speed with the best peer's.
func fasterThanPeers(name string, t *timing, least float64) bar {
	b := bar{Name: name, Of: t.Scenario, Want: fmt.Sprintf("≥ %g× as fast", least), Verdict: "not measured"}
	peer, ns := t.bestPeer()
	if sluice := t.ns("sluice"); sluice > 0 && ns > 0 {
		b.Got = fmt.Sprintf("%.2f× (%s)", ns/sluice, peer)
		b.Verdict = verdict(ns/sluice >= least)
	}
	return b.unless(t, "sluice", peer)
}

func (r *report) bars() []bar {
	const times = "× floor"
	one, all := 1, r.CPUs
	var bars []bar
	add := func(b bar) { bars = append(bars, b) }
	ratio := func(title, scenario string, procs int, contender string, most float64) {
		t := r.timing(scenario, procs)
		add(atMost(title, scenario, t.ratio(contender, "floor"), most, times).unless(t, contender, "floor"))
	}
	ratio("hot key, 1 cpu, token bucket", hot, one, "sluice", 1.4)
	add(fasterThanPeers("hot key, 1 cpu, vs every peer with keys", r.timing(hot, one), 1))
	ratio("1M keys uniform, 1 cpu", uniform, one, "sluice", 1.25)
	if all > 1 {
		ratio("1M keys uniform, all cpus", uniform, all, "sluice", 1.25)
		add(fasterThanPeers("1M keys uniform, all cpus, vs the best peer", r.timing(uniform, all), 3))
	}
	ratio("sliding counter, hot key, 1 cpu", hot, one, "sluice-counter", 1.7)
	ratio("sliding counter, 1M keys uniform, 1 cpu", uniform, one, "sluice-counter", 1.3)
	if all > 1 {
		ratio("sliding counter, 1M keys uniform, all cpus", uniform, all, "sluice-counter", 1.3)
	}
	t := r.timing(uniform, one)
	add(atMost("three limits in one call, uniform, 1 cpu", uniform, t.ratio("sluice-3", "sluice"), 1.8, "× one").unless(t, "sluice-3", "sluice"))
	for _, name := range []string{"sluice", "sluice-window", "sluice-counter"} {
		add(atMost("memory per key, 5M keys, "+name, mem5m, r.memory(mem5m, name).Resident, 30, " B"))
	}
	gc := atMost("one full garbage collection, 5M live keys", mem5m, 0, 3, " ms over an empty process")
	if sluice, empty := r.memory(mem5m, "sluice"), r.memory(mem5m, "empty"); sluice.GC > 0 && empty.GC > 0 {
		over := (sluice.GC - empty.GC).Seconds() * 1000
		gc.Got, gc.Verdict = fmt.Sprintf("%+.2f ms", over), verdict(over <= 3)
	}
	add(gc)
	add(r.allocBar())
	for _, w := range r.Rules {
		add(atMost("match among 10,000 rules, by "+w.Shape, ruleMatch, w.Many/w.Few, 2, "× among 10"))
	}
	bars = append(bars, r.overloadBars()...)
	add(atMost("HTTP middleware, share of a bare request", httpServe, r.httpShare("http-sluice"), 5, " %"))
	return slices.Concat(bars, simulateBars(r.Simulate), r.remoteBars(), r.serviceBars(), r.respBars(), r.gatewayBars())
}

// allocBar requires that no contender of Sluice allocates in any scenario.
func (r *report) allocBar() bar {
	b := bar{Name: "allocations per decision", Want: "0", Verdict: "not measured"}
	worst, where := -1.0, ""
	for _, t := range r.Timings {
		for _, w := range t.Rows {
			if w.role == roleOurs && w.Ns > 0 && w.Allocs > worst {
				worst, where = w.Allocs, w.Contender+" "+t.Scenario
			}
		}
	}
	for _, w := range r.Rules {
		if w.Allocs > worst {
			worst, where = w.Allocs, "rules by "+w.Shape
		}
	}
	if worst >= 0 {
		b.Got, b.Verdict = strings.TrimSpace(allocs(worst)), verdict(worst < noAllocs)
		if worst >= noAllocs {
			b.Got += " (" + where + ")"
		}
	}
	return b
}

// noAllocs is practically none: the runtime itself allocates occasionally.
const noAllocs = 0.001

func (r *report) memory(scenario, contender string) memoryRow {
	for _, t := range r.Memory {
		for _, w := range t.Rows {
			if t.Scenario == scenario && w.Contender == contender {
				return w
			}
		}
	}
	return memoryRow{}
}

// httpShare returns the cost that a middleware adds to a request, in percent, or 0 if it was not measured.
func (r *report) httpShare(contender string) float64 {
	for _, w := range r.HTTP {
		if w.Contender == contender {
			return 100 * w.Share
		}
	}
	return 0
}
