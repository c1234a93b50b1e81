package metrics

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluiceproject/sluice/internal/bounds"
)

// Requests counts the requests of one protocol. A nil *Requests counts nothing.
type Requests struct {
	m        *Metrics
	protocol string
	took     prometheus.Observer
	byCode   atomic.Pointer[map[string]prometheus.Counter]
	adding   sync.Mutex // held while byCode is replaced
}

// maxCodes is the maximum number of codes per protocol; further ones are counted as "other".
const maxCodes = 50

// Requests returns the counters of a protocol: "rls", "http", "auth" or "resp". The codes are exported from the start,
// with 0; others when they first occur.
func (m *Metrics) Requests(protocol string, codes ...string) *Requests {
	r := &Requests{m: m, protocol: protocol, took: m.duration.WithLabelValues(protocol)}
	r.byCode.Store(&map[string]prometheus.Counter{})
	for _, c := range codes {
		r.add(c)
	}
	return r
}

// Done counts a request with the response code. began is the time.Now at which its processing began.
func (r *Requests) Done(code string, began time.Time) {
	if r == nil {
		return
	}
	c, ok := (*r.byCode.Load())[code]
	if !ok {
		c = r.add(code)
	}
	c.Inc()
	r.took.Observe(time.Since(began).Seconds())
}

// Add counts n requests with the response code and without duration, for protocols in which reading the clock per request
// would be too expensive.
func (r *Requests) Add(code string, n int64) {
	c, ok := (*r.byCode.Load())[code]
	if !ok {
		c = r.add(code)
	}
	c.Add(float64(n))
}

func (r *Requests) add(code string) prometheus.Counter {
	r.adding.Lock()
	defer r.adding.Unlock()
	known := *r.byCode.Load()
	if c, ok := known[code]; ok {
		return c
	}
	if len(known) >= maxCodes {
		bounds.MetricCodes.Reached()
		return r.m.requests.WithLabelValues(r.protocol, "other")
	}
	c := r.m.requests.WithLabelValues(r.protocol, code)
	next := maps.Clone(known)
	next[code] = c
	r.byCode.Store(&next)
	return c
}
