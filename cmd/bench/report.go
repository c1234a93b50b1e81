package main

import (
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"time"
)

// A report contains all results of a run, ready to print.
type report struct {
	Go, System string
	CPUs       int
	Seconds    float64
	Timings    []timing
	Memory     []memoryTable `json:",omitempty"`
	HTTP       []httpRow     `json:",omitempty"`
	Rules      []ruleCost    `json:",omitempty"`
	Redis      []remoteTable `json:",omitempty"`
	Bars       []bar
	Contenders []about
	Notes      []string
	Invalid    []string `json:",omitempty"`

	RedisMemory []remoteMemoryRow `json:",omitempty"`
	Lease       []leaseRow        `json:",omitempty"`
	Stores      []storeRow        `json:",omitempty"`
	Overload    []overloadRow     `json:",omitempty"`
	Simulate    *simulateRun      `json:",omitempty"`

	Services      []serviceTable     `json:",omitempty"`
	ServiceMemory []serviceMemoryRow `json:",omitempty"`
	RESP          []serviceTable     `json:",omitempty"`
	Gateway       []serviceTable     `json:",omitempty"`
}

// A timing is the table of one scenario at one GOMAXPROCS.
type timing struct {
	Scenario, Title      string
	Procs, Ops, Distinct int
	Rows                 []row
}

// A row contains one contender's figures: medians, and the minimum and maximum of the repetitions.
type row struct {
	Contender string
	Invalid   string `json:",omitempty"`
	Ns        float64
	Min, Max  float64
	PerFloor  float64 `json:",omitempty"`
	PerSluice float64 `json:",omitempty"`
	Allocs    float64
	Repeated  int  // number of repetitions that the figures are from
	Disturbed bool `json:",omitempty"` // other processes used CPU time during all of them
	role      role
}

type memoryTable struct {
	Scenario, Title string
	Keys            int
	Rows            []memoryRow
}

type memoryRow struct {
	Contender      string
	Invalid        string  `json:",omitempty"`
	Resident, Heap float64 // bytes per key
	GC             time.Duration
}

// An httpRow is the median cost of a request.
type httpRow struct {
	Contender string
	Invalid   string `json:",omitempty"`
	httpCost
	Share float64 // the handler's time minus the bare handler's, as a share of the bare server's CPU time per request
}

type about struct{ Name, About, Clock string }

func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	v := slices.Sorted(slices.Values(values))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

func (r *runner) report() *report {
	rep := &report{
		Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(),
		Seconds: r.took.Seconds(),
	}
	invalid := map[string]bool{}
	for i := range r.scenarios {
		s := &r.scenarios[i]
		switch s.name {
		case httpServe:
			rep.HTTP = r.httpRows(s, invalid)
		case ruleMatch:
			rep.Rules = r.ruleRows(s, invalid)
		case redisLoad:
			rep.Redis = r.remoteTables(s, invalid)
		case redisMem:
			rep.RedisMemory = r.remoteMemoryRows(s, invalid)
		case overloaded:
			rep.Overload = r.overloadRows(s, invalid)
		case simulated:
			rep.Simulate = r.simulateRow(s, invalid)
		case leased:
			rep.Lease = r.leaseRows(s, invalid)
		case storeRun:
			rep.Stores = r.storeRows(s, invalid)
		case serviceRun:
			rep.Services = r.serviceTables(s, serviceLoads, invalid)
		case respRun:
			rep.RESP = r.serviceTables(s, respLoads, invalid)
		case gatewayRun:
			rep.Gateway = r.gatewayTables(s, invalid)
		case serviceMem:
			rep.ServiceMemory = r.serviceMemoryRows(s, invalid)
		case mem1m, mem5m:
			rep.Memory = append(rep.Memory, r.memoryTable(s, invalid))
		default:
			for i, procs := range r.procs {
				rep.Timings = append(rep.Timings, r.timing(s, i, procs, invalid))
			}
		}
	}
	rep.Invalid = slices.Sorted(maps.Keys(invalid))
	rep.Bars = rep.bars()
	for _, c := range r.contenders {
		if slices.ContainsFunc(r.scenarios, func(s scenario) bool { return c.runs(s.name) }) {
			rep.Contenders = append(rep.Contenders, about{c.name, c.about, c.clock})
		}
	}
	for _, l := range leftOut {
		rep.Notes = append(rep.Notes, fmt.Sprintf("%s was left out: it %s.", l.name, l.why))
	}
	if len(rep.Redis) > 0 {
		rep.Notes = append(rep.Notes, r.pins.note())
	}
	if r.quick {
		rep.Notes = append(rep.Notes, "This was -quick: fewer operations and repetitions. Quote a full run.")
	}
	return rep
}

// valid returns the results of one contender, or the first reason why they are invalid.
func (r *runner) valid(s *scenario, c *contender, invalid map[string]bool) ([]*result, string) {
	all := r.results[at(s.name, c.name)]
	for _, res := range all {
		if res.Invalid != "" {
			invalid[at(s.name, c.name)+": "+res.Invalid] = true
			return nil, res.Invalid
		}
	}
	return all, ""
}

func (r *runner) timing(s *scenario, phase, procs int, invalid map[string]bool) timing {
	t := timing{Scenario: s.name, Title: s.title, Procs: procs, Ops: s.ops}
	for i := range r.contenders {
		c := &r.contenders[i]
		if !c.runs(s.name) {
			continue
		}
		all, why := r.valid(s, c, invalid)
		w := row{Contender: c.name, Invalid: why, role: c.role}
		phases := calm(all, phase)
		var ns, allocs []float64
		for _, p := range phases {
			ns, allocs = append(ns, p.Ns), append(allocs, p.Allocs)
			t.Distinct = p.Distinct
		}
		w.Repeated, w.Disturbed = len(phases), len(phases) > 0 && phases[0].Disturbed
		if len(ns) > 0 {
			w.Ns, w.Min, w.Max, w.Allocs = median(ns), slices.Min(ns), slices.Max(ns), median(allocs)
		}
		t.Rows = append(t.Rows, w)
	}
	floor, sluice := t.ns("floor"), t.ns("sluice")
	for i := range t.Rows {
		w := &t.Rows[i]
		if floor > 0 {
			w.PerFloor = w.Ns / floor
		}
		if sluice > 0 {
			w.PerSluice = w.Ns / sluice
		}
	}
	return t
}

// calm returns the repetitions of a phase that other processes did not disturb, or all if they disturbed all.
func calm(all []*result, phaseIndex int) (phases []phase) {
	for _, res := range all {
		if p := res.Phases[phaseIndex]; !p.Disturbed {
			phases = append(phases, p)
		}
	}
	if len(phases) > 0 {
		return phases
	}
	for _, res := range all {
		phases = append(phases, res.Phases[phaseIndex])
	}
	return phases
}

// ns returns a contender's median, or 0 if there is none.
func (t *timing) ns(contender string) float64 {
	for i := range t.Rows {
		if t.Rows[i].Contender == contender {
			return t.Rows[i].Ns
		}
	}
	return 0
}

func (r *runner) memoryTable(s *scenario, invalid map[string]bool) memoryTable {
	t := memoryTable{Scenario: s.name, Title: s.title, Keys: s.keys}
	for i := range r.contenders {
		c := &r.contenders[i]
		if !c.runs(s.name) {
			continue
		}
		all, why := r.valid(s, c, invalid)
		w := memoryRow{Contender: c.name, Invalid: why}
		var resident, heap, gc []float64
		for _, res := range all {
			resident, heap = append(resident, res.Memory.Resident), append(heap, res.Memory.Heap)
			gc = append(gc, float64(res.Memory.GC))
		}
		if len(all) > 0 {
			w.Resident, w.Heap, w.GC = median(resident), median(heap), time.Duration(median(gc))
		}
		t.Rows = append(t.Rows, w)
	}
	return t
}

func (r *runner) httpRows(s *scenario, invalid map[string]bool) (rows []httpRow) {
	var bare httpCost
	for i := range r.contenders {
		c := &r.contenders[i]
		if !c.runs(s.name) {
			continue
		}
		all, why := r.valid(s, c, invalid)
		w := httpRow{Contender: c.name, Invalid: why}
		var handler, allocs, server []float64
		for _, res := range all {
			handler, allocs = append(handler, res.HTTP.HandlerNs), append(allocs, res.HTTP.Allocs)
			server = append(server, res.HTTP.ServerNs)
		}
		if len(all) > 0 {
			w.httpCost = httpCost{median(handler), median(allocs), median(server)}
		}
		if c.role == roleFloor {
			bare = w.httpCost
		} else if bare.ServerNs > 0 && len(all) > 0 {
			w.Share = (w.HandlerNs - bare.HandlerNs) / bare.ServerNs
		}
		rows = append(rows, w)
	}
	return rows
}

// ruleRows returns the medians over the repetitions, for each shape.
func (r *runner) ruleRows(s *scenario, invalid map[string]bool) (rows []ruleCost) {
	for i := range r.contenders {
		c := &r.contenders[i]
		if !c.runs(s.name) {
			continue
		}
		all, _ := r.valid(s, c, invalid)
		for j := range shapes {
			var few, many, allocs []float64
			for _, res := range all {
				few, many = append(few, res.Rules[j].Few), append(many, res.Rules[j].Many)
				allocs = append(allocs, res.Rules[j].Allocs)
			}
			if len(all) > 0 {
				rows = append(rows, ruleCost{shapes[j].name, median(few), median(many), median(allocs)})
			}
		}
	}
	return rows
}
