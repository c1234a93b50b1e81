// Package bounds lists all bounds that a client, an upstream, a store or a file can reach, and counts how often each
// was reached. The page docs/bounds.md and the metric sluice_bound_reached_total are generated from the list.
package bounds

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// A Bound is a size, count or time that clients, upstreams, stores and files cannot exceed.
type Bound struct {
	Name    string // label of the metric: lower case with underscores
	Group   string // heading of docs/bounds.md
	Default string // with its unit
	Setting string // key of the configuration or of a rule that raises it; "" if it is fixed
	Result  string // consequence when it is reached
	// Elsewhere is the metric that counts the bound instead of [Metric], or [Library].
	Elsewhere string

	reached atomic.Int64
}

// Reached counts that the bound was reached once. It does not allocate and is safe for concurrent use.
func (b *Bound) Reached() { b.reached.Add(1) }

// Count returns how often the bound was reached since the process started.
func (b *Bound) Count() int64 { return b.reached.Load() }

// Counted is the context key of a value that is not nil if the bounds of a request's address have already been counted,
// because several handlers read the same header.
type Counted struct{}

// Metric is the metric that counts bounds, with the label bound.
const Metric = "sluice_bound_reached_total"

// Library instead of a metric means that a library enforces the bound and does not report when it is reached.
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

// all contains every bound, in the order of docs/bounds.md.
var all []*Bound

// All returns every bound, in the order of docs/bounds.md.
func All() []*Bound { return all }

func add(group string, b *Bound) *Bound {
	b.Group = group
	all = append(all, b)
	return b
}

// Periods of Log: how often counts are compared, and the minimum time between two lines about one bound.
const (
	pollInterval = time.Second
	quietFor     = time.Minute
)

// Log writes a warning for each bound that was reached, at most one per minute and bound, until ctx is done. Then it
// writes the remaining ones.
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
