// Package bounds is the one list of the bounds that a client, an upstream, a store or a file can reach, and counts how
// often each was. The page docs/bounds.md and the metric sluice_bound_reached_total are made of it.
package bounds

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// A Bound is a size, count or time that outsiders cannot exceed.
type Bound struct {
	Name    string // of the metric's label: lower case with underscores
	Group   string // heading of docs/bounds.md
	Default string // with its unit
	Setting string // that raises it, a key of the configuration or of a rule; "" if it is fixed
	Result  string // what happens when it is reached
	// Elsewhere is the metric that counts it instead of [Metric], or [Library].
	Elsewhere string

	reached atomic.Int64
}

// Reached counts that the bound was reached once. It allocates nothing, and any number of goroutines may call it.
func (b *Bound) Reached() { b.reached.Add(1) }

// Count returns how often the bound was reached since the process started.
func (b *Bound) Count() int64 { return b.reached.Load() }

// Counted is the key of a context's value that is not nil if the bounds of a request's address have been counted already:
// several handlers look at the same header.
type Counted struct{}

// Metric is the metric that counts bounds, with the label bound.
const Metric = "sluice_bound_reached_total"

// Library in place of a metric says that a library keeps to the bound and does not report when it is reached.
const Library = "–"

// Headings of docs/bounds.md.
const (
	clients   = "Clients"
	memory    = "Memory"
	queueing  = "Durable queue"
	upstreams = "Upstreams"
	stores    = "Stores and other dependencies"
	files     = "Files"
	operators = "Operators"
)

// all holds every bound, in the order of docs/bounds.md.
var all []*Bound

// All returns every bound, in the order of docs/bounds.md.
func All() []*Bound { return all }

func add(group string, b *Bound) *Bound {
	b.Group = group
	all = append(all, b)
	return b
}

// Log periods: how often counts are compared, and how long a bound that is reached all the time stays silent.
const (
	pollInterval = time.Second
	quietFor     = time.Minute
)

// Log writes one warning for each bound that was reached, at most one a minute per bound, until ctx ends. Then it writes
// those that were not written yet.
func Log(ctx context.Context, log *slog.Logger) {
	type state struct {
		seen int64
		at   time.Time
	}
	states := make([]state, len(all))
	for i, b := range all {
		states[i].seen = b.Count()
	}
	write := func(now time.Time, quiet time.Duration) {
		for i, b := range all {
			s, n := &states[i], b.Count()
			if n == s.seen || !s.at.IsZero() && now.Sub(s.at) < quiet {
				continue
			}
			log.Warn("bound reached", "bound", b.Name, "times", n-s.seen, "setting", b.Setting)
			s.seen, s.at = n, now
		}
	}
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			write(time.Now(), 0)
			return
		case now := <-tick.C:
			write(now, quietFor)
		}
	}
}
