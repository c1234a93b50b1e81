package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// A remoteTable contains the results of contenders under one load.
type remoteTable struct {
	Load, Title string
	Ops         int
	Rows        []remoteRow
}

// A remoteRow contains one contender's medians.
type remoteRow struct {
	Contender string
	Invalid   string `json:",omitempty"`
	remotePhase
	Min, Max float64 // decisions per second, over the repetitions
	Repeated int
}

// A remoteMemoryRow is the memory of a key.
type remoteMemoryRow struct {
	Contender string
	Invalid   string `json:",omitempty"`
	remoteMemory
}

// A leaseRow contains one contender's medians with some number of keys.
type leaseRow struct {
	Contender string
	Invalid   string `json:",omitempty"`
	leaseCost
	PerMemory float64 // its speed over that of decisions in memory
}

// remoteTables returns the medians over the repetitions that were not disturbed, for each load.
func (r *runner) remoteTables(s *scenario, invalid map[string]bool) (tables []remoteTable) {
	for _, l := range s.loads() {
		t := remoteTable{Load: l.name, Title: l.title, Ops: l.ops}
		for _, c := range remoteContenders() {
			if !r.chose(c.name) || !c.runs(s.name) || c.phases != nil && !slices.Contains(c.phases, l.name) {
				continue
			}
			all, why := r.valid(s, &c.contender, invalid)
			t.Rows = append(t.Rows, newRemoteRow(c.name, why, l.name, all))
		}
		if len(t.Rows) > 0 {
			tables = append(tables, t)
		}
	}
	return tables
}

func (r *runner) chose(name string) bool {
	return slices.ContainsFunc(r.contenders, func(c contender) bool { return c.name == name })
}

func newRemoteRow(name, why, load string, all []*result) remoteRow {
	w := remoteRow{Contender: name, Invalid: why}
	var phases, calm []remotePhase
	for _, res := range all {
		for _, p := range res.Redis {
			if p.Load == load {
				phases = append(phases, p)
			}
		}
	}
	for _, p := range phases {
		if !p.Disturbed {
			calm = append(calm, p)
		}
	}
	if w.Disturbed = len(calm) == 0; !w.Disturbed {
		phases = calm
	}
	if w.Repeated = len(phases); w.Repeated == 0 {
		return w
	}
	of := func(figure func(*remotePhase) float64) (all []float64) {
		for i := range phases {
			all = append(all, figure(&phases[i]))
		}
		return all
	}
	speeds := of(func(p *remotePhase) float64 { return p.PerSecond })
	w.PerSecond, w.Min, w.Max = median(speeds), slices.Min(speeds), slices.Max(speeds)
	w.CPU = median(of(func(p *remotePhase) float64 { return p.CPU }))
	w.Requests = median(of(func(p *remotePhase) float64 { return p.Requests }))
	w.P50 = median(of(func(p *remotePhase) float64 { return p.P50 }))
	w.P99 = median(of(func(p *remotePhase) float64 { return p.P99 }))
	w.Allocs = median(of(func(p *remotePhase) float64 { return p.Allocs }))
	return w
}

func (r *runner) remoteMemoryRows(s *scenario, invalid map[string]bool) (rows []remoteMemoryRow) {
	for i := range r.contenders {
		c := &r.contenders[i]
		if !c.runs(s.name) {
			continue
		}
		all, why := r.valid(s, c, invalid)
		w := remoteMemoryRow{Contender: c.name, Invalid: why}
		if len(all) > 0 {
			w.remoteMemory = *all[0].RedisMemory
		}
		rows = append(rows, w)
	}
	return rows
}

func (r *runner) leaseRows(s *scenario, invalid map[string]bool) (rows []leaseRow) {
	for at, keys := range leaseKeys {
		memory := 0.0
		for i := range r.contenders {
			c := &r.contenders[i]
			if !c.runs(s.name) {
				continue
			}
			all, why := r.valid(s, c, invalid)
			w := leaseRow{Contender: c.name, Invalid: why}
			w.Keys = keys
			var ns, allocs, per []float64
			for _, l := range calmLeases(all, at) {
				ns, allocs, per = append(ns, l.Ns), append(allocs, l.Allocs), append(per, l.PerRequest)
				w.Disturbed = l.Disturbed
			}
			if len(all) > 0 {
				w.Ns, w.Allocs, w.PerRequest = median(ns), median(allocs), median(per)
				if c.role == roleFloor {
					memory = w.Ns
				}
				w.PerMemory = memory / w.Ns
			}
			rows = append(rows, w)
		}
	}
	return rows
}

// calmLeases returns the repetitions that other processes did not disturb, or all if they disturbed all.
func calmLeases(all []*result, at int) (costs []leaseCost) {
	for _, res := range all {
		if !res.Lease[at].Disturbed {
			costs = append(costs, res.Lease[at])
		}
	}
	if len(costs) > 0 {
		return costs
	}
	for _, res := range all {
		costs = append(costs, res.Lease[at])
	}
	return costs
}

func (t *remoteTable) write(w io.Writer) {
	fmt.Fprintf(w, "\nRedis: %s (-only %s; %d decisions)\n\n", t.Title, redisLoad, t.Ops)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(tw, "contender\tdecisions/s\tmin–max\t× redis_rate\t× raw -P16\tRedis µs/decision\tRedis busy\trequests/decision\tp50 µs\tp99 µs\tallocs\t\n")
	disturbed := false
	for i := range t.Rows {
		r := &t.Rows[i]
		if r.Invalid != "" {
			fmt.Fprintf(tw, "%s\tINVALID\t\t\t\t\t\t\t\t\t\t\n", r.Contender)
			continue
		}
		mark := ""
		if r.Disturbed {
			mark, disturbed = "~", true
		}
		fmt.Fprintf(tw, "%s\t%s%.0f\t%.0f–%.0f\t%s\t%s\t%.2f\t%.0f %%\t%.3f\t%.0f\t%.0f\t%.1f\t\n",
			r.Contender, mark, r.PerSecond, r.Min, r.Max, factor(t.speed(r.Contender, "redis_rate")),
			factor(t.speed(r.Contender, "redis-raw-P16")), r.CPU, r.CPU*r.PerSecond/1e4, r.Requests, r.P50, r.P99, r.Allocs)
	}
	tw.Flush()
	if disturbed {
		fmt.Fprint(w, "\n  ~ other processes used CPU time in every repetition: its ratios are meaningless, measure again\n")
	}
}

func writeRemoteMemory(w io.Writer, rows []remoteMemoryRow) {
	fmt.Fprintf(w, "\nRedis: memory of a key with a TTL (-only %s)\n\n", redisMem)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(tw, "contender\tused_memory B/key\tMEMORY USAGE B\t\n")
	for _, r := range rows {
		if r.Invalid != "" {
			fmt.Fprintf(tw, "%s\tINVALID\t\t\n", r.Contender)
			continue
		}
		fmt.Fprintf(tw, "%s\t%.1f\t%.0f\t\n", r.Contender, r.Used, r.Usage)
	}
	tw.Flush()
}

func writeLeases(w io.Writer, rows []leaseRow) {
	fmt.Fprintf(w, "\nLeases from Redis, all CPUs (-only %s)\n\n", leased)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(tw, "contender\tkeys\tns/op\tspeed × memstore\tdecisions/request\tallocs/op\t\n")
	for _, r := range rows {
		if r.Invalid != "" {
			fmt.Fprintf(tw, "%s\t%d\tINVALID\t\t\t\t\n", r.Contender, r.Keys)
			continue
		}
		mark := ""
		if r.Disturbed {
			mark = "~"
		}
		fmt.Fprintf(tw, "%s\t%d\t%s%.1f\t%s\t%s\t%s\t\n",
			r.Contender, r.Keys, mark, r.Ns, factor(r.PerMemory), whole(r.PerRequest), allocs(r.Allocs))
	}
	tw.Flush()
}

func whole(x float64) string {
	if x == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f", x)
}
