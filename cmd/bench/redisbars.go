package main

import "fmt"

func (r *report) remote(load string) *remoteTable {
	for i := range r.Redis {
		if r.Redis[i].Load == load {
			return &r.Redis[i]
		}
	}
	return new(remoteTable)
}

// row returns a contender's valid figures, or none.
func (t *remoteTable) row(contender string) remoteRow {
	for _, w := range t.Rows {
		if w.Contender == contender && w.Invalid == "" && w.Repeated > 0 {
			return w
		}
	}
	return remoteRow{}
}

// speed returns one contender's decisions per second over another's, or 0 if either is missing.
func (t *remoteTable) speed(of, to string) float64 {
	return over(t.row(of).PerSecond, t.row(to).PerSecond)
}

// over returns a ratio, or 0 if a part is missing.
func over(a, b float64) float64 {
	if a == 0 || b == 0 {
		return 0
	}
	return a / b
}

func (t *remoteTable) disturbed(contenders ...string) bool {
	for _, c := range contenders {
		if t.row(c).Disturbed {
			return true
		}
	}
	return false
}

func atLeast(name, of string, got, least float64, unit string) bar {
	b := bar{Name: name, Of: of, Want: fmt.Sprintf("≥ %g%s", least, unit), Verdict: "not measured"}
	if got != 0 {
		b.Got = fmt.Sprintf("%.2f%s", got, unit)
		b.Verdict = verdict(got >= least)
	}
	return b
}

// withdrawn withdraws the verdict if other processes disturbed the compared contenders.
func (b bar) withdrawn(disturbed bool) bar {
	if disturbed && b.Got != "" {
		b.Verdict = "disturbed"
	}
	return b
}

// remoteBars returns the targets of the Redis scenarios.
func (r *report) remoteBars() (bars []bar) {
	faster := func(title, load, contender, than string, least float64) {
		t := r.remote(load)
		bars = append(bars, atLeast(title, redisLoad, t.speed(contender, than), least, "× "+than).
			withdrawn(t.disturbed(contender, than)))
	}
	faster("Redis, one decision per call, 64 callers", spread64, "redis-sluice-1", "redis_rate", 2.2)
	faster("Redis, one decision per call, 64 callers", spread64, "redis-sluice-1", "redis-raw-P16", 0.8)
	faster("Redis, batched calls, 64 callers", spread64, "redis-sluice", "redis-raw-P16", 1.2)
	faster("Redis, batched calls, 256 callers", spread256, "redis-sluice", "redis-raw-P16", 1.8)
	cheaper := func(title, load string, got, most float64, unit string, contenders ...string) {
		bars = append(bars, atMost(title, redisLoad, got, most, unit).withdrawn(r.remote(load).disturbed(contenders...)))
	}
	one, many, single := r.remote(spread64), r.remote(spread256), r.remote(alone)
	cheaper("Redis, latency of a single caller", alone,
		over(single.row("redis-sluice").P50, single.row("redis-plain").P50), 1.1, "× plain script", "redis-sluice", "redis-plain")
	cheaper("Redis CPU per decision, one per call, 64 callers", spread64,
		over(one.row("redis-sluice-1").CPU, one.row("redis-plain").CPU), 0.9, "× plain script", "redis-sluice-1", "redis-plain")
	cheaper("Redis CPU per decision, batched calls, 256 callers", spread256, many.row("redis-sluice").CPU, 3.5, " µs", "redis-sluice")
	cheaper("requests per decision over five limits", spread64, one.row("redis-sluice-5").Requests, 1, "")
	cheaper("Redis CPU per decision over five limits, one per call", spread64,
		over(one.row("redis-sluice-5").CPU, one.row("redis-sluice-1").CPU), 3, "× one limit", "redis-sluice-5", "redis-sluice-1")
	cheaper("Redis requests per denial of a hot key, with the deny cache", denied64,
		r.remote(denied64).row("redis-sluice-limiter").Requests, 0.1, "")
	return append(append(bars, r.remoteMemoryBars()...), r.leaseBars()...)
}

func (r *report) remoteMemoryBars() (bars []bar) {
	for _, w := range []struct {
		contender string
		most      float64
	}{
		{"redis-sluice", 112}, {"redis-sluice-window", 112}, {"redis-sluice-counter", 144}, {"redis-sluice-fraction", 144},
	} {
		var got remoteMemory
		for _, m := range r.RedisMemory {
			if m.Contender == w.contender {
				got = m.remoteMemory
			}
		}
		bars = append(bars, atMost("memory per key in Redis, used_memory, "+w.contender, redisMem, got.Used, w.most, " B"),
			atMost("memory per key in Redis, MEMORY USAGE, "+w.contender, redisMem, got.Usage, w.most, " B"))
	}
	return bars
}

func (r *report) leaseBars() (bars []bar) {
	disturbed := map[int]bool{} // of the contender to compare with, by number of keys
	for _, w := range r.Lease {
		if w.PerRequest == 0 {
			disturbed[w.Keys] = w.Disturbed
			continue
		}
		title := fmt.Sprintf("%s, %d keys", w.Contender, w.Keys)
		bars = append(bars, atLeast(title+", speed", leased, w.PerMemory, 0.5, "× memstore").
			withdrawn(w.Disturbed || disturbed[w.Keys]),
			atLeast(title+", decisions per request", leased, w.PerRequest, 50, ""))
	}
	return bars
}
