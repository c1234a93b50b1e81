package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// A serviceTable contains the results of servers under one load.
type serviceTable struct {
	Scenario    string
	Load, Title string
	Takes       int
	Rows        []serviceRow
}

// A serviceRow contains one server's medians.
type serviceRow struct {
	Contender string
	Invalid   string `json:",omitempty"`
	servicePhase
	Min, Max float64 // of the server's CPU time
	PerFloor float64 `json:",omitempty"` // its CPU time over the floor's
	Repeated int
	role     role
}

type serviceMemoryRow struct {
	Contender string
	Invalid   string `json:",omitempty"`
	serviceWeight
}

func (r *runner) serviceTables(s *scenario, loads []serviceLoad, invalid map[string]bool) (tables []serviceTable) {
	for i := range loads {
		tables = append(tables, r.serviceTable(s, &loads[i], "service-floor", invalid))
	}
	return tables
}

func (r *runner) gatewayTables(s *scenario, invalid map[string]bool) (tables []serviceTable) {
	for i := range gatewayLoads {
		l := &gatewayLoads[i]
		tables = append(tables, r.serviceTable(s, &l.serviceLoad, l.floor, invalid))
	}
	return tables
}

// serviceTable returns the table of one load, with a floor.
func (r *runner) serviceTable(s *scenario, l *serviceLoad, floor string, invalid map[string]bool) serviceTable {
	t := serviceTable{Scenario: s.name, Load: l.name, Title: l.title, Takes: l.takes}
	for i := range r.contenders {
		c := &r.contenders[i]
		if !c.runs(s.name) {
			continue
		}
		all, why := r.valid(s, c, invalid)
		w := serviceRow{Contender: c.name, Invalid: why, role: c.role}
		w.fill(l.name, all)
		t.Rows = append(t.Rows, w)
	}
	if floor := t.row(floor); floor.CPU > 0 {
		for i := range t.Rows {
			t.Rows[i].PerFloor = t.Rows[i].CPU / floor.CPU
		}
	}
	return t
}

// fill sets the medians over the repetitions that were not disturbed, or over all if all were.
func (w *serviceRow) fill(load string, all []*result) {
	var phases, calm []servicePhase
	for _, res := range all {
		for _, p := range res.Service {
			if p.Load != load {
				continue
			}
			phases = append(phases, p)
			if !p.Disturbed {
				calm = append(calm, p)
			}
		}
	}
	if w.Repeated = len(phases); w.Repeated == 0 {
		return
	}
	disturbed := len(calm) == 0
	if !disturbed {
		phases, w.Repeated = calm, len(calm)
	}
	of := func(figure func(*servicePhase) float64) float64 {
		var values []float64
		for i := range phases {
			values = append(values, figure(&phases[i]))
		}
		return median(values)
	}
	w.servicePhase = servicePhase{
		Load: load, Requests: phases[0].Requests, Disturbed: disturbed,
		PerSecond: of(func(p *servicePhase) float64 { return p.PerSecond }),
		CPU:       of(func(p *servicePhase) float64 { return p.CPU }),
		RedisCPU:  of(func(p *servicePhase) float64 { return p.RedisCPU }),
		P50:       of(func(p *servicePhase) float64 { return p.P50 }),
		P99:       of(func(p *servicePhase) float64 { return p.P99 }),
		OpenP99:   of(func(p *servicePhase) float64 { return p.OpenP99 }),
	}
	w.Min, w.Max = phases[0].CPU, phases[0].CPU
	for i := range phases {
		w.Min, w.Max = min(w.Min, phases[i].CPU), max(w.Max, phases[i].CPU)
	}
}

// row returns a contender's row, empty if there is none.
func (t *serviceTable) row(contender string) serviceRow {
	for i := range t.Rows {
		if t.Rows[i].Contender == contender && t.Rows[i].Invalid == "" {
			return t.Rows[i]
		}
	}
	return serviceRow{}
}

func (r *runner) serviceMemoryRows(s *scenario, invalid map[string]bool) (rows []serviceMemoryRow) {
	for i := range r.contenders {
		c := &r.contenders[i]
		if !c.runs(s.name) {
			continue
		}
		all, why := r.valid(s, c, invalid)
		w := serviceMemoryRow{Contender: c.name, Invalid: why}
		if len(all) > 0 {
			w.serviceWeight = *all[0].ServiceMemory
		}
		rows = append(rows, w)
	}
	return rows
}

func (t *serviceTable) write(w io.Writer) {
	fmt.Fprintf(w, "\nService: %s (-only %s)\n\n", t.Title, t.Scenario)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(tw, "contender\tserver CPU/request\tmin–max\t× floor\tin Redis\trequests/s\tp50\tp99\t")
	open := t.Load == loadOne
	if open {
		fmt.Fprintf(tw, "p99 at %d/s\t", openRate)
	}
	fmt.Fprintln(tw)
	disturbed := false
	for _, r := range t.Rows {
		switch {
		case r.Invalid != "":
			fmt.Fprintf(tw, "%s\tINVALID\t\t\t\t\t\t\t", r.Contender)
		case r.Repeated == 0:
			continue // it does not have this load
		default:
			mark := ""
			if r.Disturbed {
				mark, disturbed = "~", true
			}
			fmt.Fprintf(tw, "%s\t%s%.1f µs\t%.1f–%.1f\t%s\t%.1f µs\t%.0f\t%.2f ms\t%.2f ms\t",
				r.Contender, mark, r.CPU, r.Min, r.Max, factor(r.PerFloor), r.RedisCPU, r.PerSecond, r.P50, r.P99)
			if open {
				fmt.Fprintf(tw, "%.2f ms\t", r.OpenP99)
			}
		}
		fmt.Fprintln(tw)
	}
	tw.Flush()
	if disturbed {
		fmt.Fprint(w, "\n  ~ other processes used CPU time in every repetition: its ratios are meaningless, measure again\n")
	}
}

func writeServiceMemory(w io.Writer, rows []serviceMemoryRow) {
	fmt.Fprintf(w, "\nService: resident memory (-only %s)\n\n", serviceMem)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(tw, "contender\tidle\tfull\tkeys\tRedis growth\t\n")
	for _, r := range rows {
		if r.Invalid != "" {
			fmt.Fprintf(tw, "%s\tINVALID\t\t\t\t\n", r.Contender)
			continue
		}
		fmt.Fprintf(tw, "%s\t%.0f MB\t%.0f MB\t%d\t%.0f MB\t\n", r.Contender, r.Idle, r.Full, r.Keys, r.Redis)
	}
	tw.Flush()
}

// serviceBars returns the targets of the service.
func (r *report) serviceBars() (bars []bar) {
	for i := range r.Services {
		t := &r.Services[i]
		memory := t.row("serve-memory")
		limit := func(title string, most float64) {
			b := atMost(title, serviceRun, memory.PerFloor, most, "× floor's CPU")
			bars = append(bars, b.withdrawn(t.disturbed("serve-memory", "service-floor")))
		}
		switch t.Load {
		case loadOne:
			limit("service in memory, 4 connections", 1.2)
			for _, peer := range []string{"envoyproxy-ratelimit", "gubernator"} {
				bars = append(bars, t.faster("service in memory", "serve-memory", peer, 2.2))
			}
			for _, ours := range []string{"serve-redis", "ratelimit-redis"} {
				bars = append(bars, t.faster(ours, ours, "envoyproxy-ratelimit", 1.5), t.sooner(ours, "envoyproxy-ratelimit"))
			}
		case loadTen:
			limit("ten descriptors, in memory", 1.3)
		case loadOver:
			limit("an exhausted key, in memory", 1.1)
		}
	}
	for _, w := range r.ServiceMemory {
		if w.Contender == "serve-memory" {
			bars = append(bars, atMost("service resident, idle", serviceMem, w.Idle, 40, " MB"),
				atMost(fmt.Sprintf("service resident, %d keys", w.Keys), serviceMem, w.Full, 90, " MB"))
		}
	}
	return bars
}

// faster compares requests per second.
func (t *serviceTable) faster(title, ours, peer string, least float64) bar {
	got := 0.0
	if a, p := t.row(ours).PerSecond, t.row(peer).PerSecond; p > 0 {
		got = a / p
	}
	return atLeast(title+" vs "+peer, t.Scenario, got, least, "× its requests/s").withdrawn(t.disturbed(ours, peer))
}

// sooner compares the 99th percentiles of the latency.
func (t *serviceTable) sooner(ours, peer string) bar {
	b := bar{Name: ours + " vs " + peer + ", p99", Of: serviceRun, Want: "below its", Verdict: "not measured"}
	if a, p := t.row(ours), t.row(peer); a.P99 > 0 && p.P99 > 0 {
		b.Got, b.Verdict = fmt.Sprintf("%.2f ms, %.2f ms", a.P99, p.P99), verdict(a.P99 < p.P99)
	}
	return b.withdrawn(t.disturbed(ours, peer))
}

// disturbed reports whether other processes used CPU time in all repetitions of one of the contenders.
func (t *serviceTable) disturbed(contenders ...string) bool {
	return slices.ContainsFunc(t.Rows, func(w serviceRow) bool {
		return w.Disturbed && slices.Contains(contenders, w.Contender)
	})
}
