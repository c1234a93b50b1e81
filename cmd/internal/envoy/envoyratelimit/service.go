package envoyratelimit

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/edge/rls"
	"github.com/sluiceproject/sluice/cmd/internal/envoy/stats"
	"github.com/sluiceproject/sluice/rules"
)

// Service serves requests as the reference does. [Service.Use] sets its rules; before that, requests fail.
type Service struct {
	response  ResponseSettings
	counting  CountingSettings
	failMode  sluice.FailMode
	limiter   *sluice.Limiter
	stats     *stats.Stats
	cache     *localCache // nil: none
	rules     atomic.Pointer[ruleSnapshot]
	lastError atomic.Pointer[string] // last error of the store
	counts    func()                 // called when the store has counted a request; may be nil
	scratch   sync.Pool              // of *scratch
	now       func() time.Time
}

var _ rls.Service = (*Service)(nil)

// failModes maps the values of SLUICE_ON_FAILURE. With error, a denial is returned as an error.
var failModes = map[string]sluice.FailMode{
	"error": sluice.FailClosed, "closed": sluice.FailClosed, "open": sluice.FailOpen, "local": sluice.FailLocal,
}

// defaultTimeout is the store timeout if SLUICE_ON_FAILURE is error. Envoy's default timeout is much shorter, but can be
// longer. With a fail mode, the shorter default of the limiter applies.
const defaultTimeout = time.Second

// NewService returns a service that counts in the store.
func NewService(store sluice.Store, s *Settings, stats *stats.Stats, options ...sluice.Option) (*Service, error) {
	v := &Service{
		response: s.Response, counting: s.Counting, failMode: failModes[s.Counting.OnFailure], stats: stats, now: time.Now,
	}
	timeout := s.Counting.Timeout
	if timeout == 0 && s.Counting.OnFailure == "error" {
		timeout = defaultTimeout
	}
	if timeout > 0 {
		options = append(options, sluice.WithStoreTimeout(timeout))
	}
	var err error
	if v.limiter, err = sluice.NewWithRules(store, nil, options...); err != nil {
		return nil, err
	}
	if s.Counting.LocalCache > 0 {
		v.cache = newLocalCache(s.Counting.LocalCache)
		stats.Gauges(v.cache.gauges)
	}
	v.scratch.New = func() any { return new(scratch) }
	return v, nil
}

// Failed records an error of the store; it is for sluice.Events.OnStoreError.
func (s *Service) Failed(_ context.Context, err error) {
	text := err.Error()
	s.lastError.Store(&text)
}

// Use applies a rule set. On an error the previous one stays in use.
func (s *Service) Use(set *rules.Set) error {
	l, err := s.compile(set)
	if err != nil {
		return err
	}
	s.rules.Store(l)
	return nil
}

// Dump returns the limits in use.
func (s *Service) Dump() string {
	if l := s.rules.Load(); l != nil {
		return l.dump()
	}
	return ""
}

func dumpLine(key string, u rls.Unit, requests uint32, d *rules.DescriptorLimit) string {
	return fmt.Sprintf("%s: unit=%s requests_per_unit=%d, shadow_mode: %t, quota_mode: %t\n", key, u, requests, d.Shadow, d.Quota)
}

// scratch is the reusable memory of one request.
type scratch struct {
	descriptors []rules.Descriptor
	matched     rules.DescriptorMatches
	hits        []hit
	takes       []sluice.Take
	out         []sluice.Decision
	keys        []byte
	statKey     []byte
}

// hit is the state of one descriptor of a request.
type hit struct {
	rule     *rules.DescriptorLimit // nil: not limited, or replaced
	limit    *limit                 // nil: not counted
	brought  limit                  // limit override of the request; limit points to it
	stats    *stats.Limit
	key      string
	keyEnd   int // in scratch.keys
	addend   uint64
	negative bool
	cached   bool // over its limit according to the local cache
	removals uint64
	over     bool // would be over its limit if it were charged
	charge   uint64
	take     int // index of its take, or -1

	after  uint64
	failed sluice.Source // SourceStore: the store counted
	reset  int64
	share  uint32 // part of the limit of this instance; the whole limit unless failed
}

// ShouldRateLimit implements [rls.Service].
func (s *Service) ShouldRateLimit(ctx context.Context, req *rls.Request, resp *rls.Response) error {
	l := s.rules.Load()
	switch {
	case req.Domain == "":
		return s.serviceError("rate limit domain must not be empty")
	case len(req.Descriptors) == 0:
		return s.serviceError("rate limit descriptor list must not be empty")
	case l == nil:
		return s.serviceError("no rate limit configuration loaded")
	}
	m := s.scratch.Get().(*scratch)
	defer s.release(m)
	s.match(l, req, m)
	if err := s.count(ctx, m); err != nil {
		return err
	}
	s.answer(req, m, resp)
	return nil
}

func (s *Service) serviceError(words string) error {
	s.stats.ServiceError.Add(1)
	return status.Error(codes.Unknown, words)
}

// release returns the memory of a request to the pool.
func (s *Service) release(m *scratch) {
	clear(m.descriptors)
	clear(m.hits)
	clear(m.takes)
	s.scratch.Put(m)
}

// match sets the hits of a request from its matching limits.
func (s *Service) match(l *ruleSnapshot, req *rls.Request, m *scratch) {
	m.descriptors, m.keys = m.descriptors[:0], m.keys[:0]
	m.hits = slices.Grow(m.hits[:0], len(req.Descriptors)) // hit.limit may point into the slice, so it must not grow
	for i := range req.Descriptors {
		d := &req.Descriptors[i]
		to := rules.Descriptor{Entries: d.Entries, Cost: 1}
		if d.HasOverride && d.Override.Unit.Known() { // an override without unit is invalid: the rules apply
			to.Limit = unitLimits[d.Override.Unit]
		}
		m.descriptors = append(m.descriptors, to)
	}
	l.set.MatchDescriptors(req.Domain, m.descriptors, &m.matched)
	for i := range m.matched.Matches {
		m.hits = append(m.hits, hit{take: -1})
		if !m.matched.DomainFound {
			s.stats.NotFound(req.Domain)
			continue
		}
		s.matched(l, req, i, m)
	}
	if s.counting.EnvoyKeys {
		from := 0
		for i := range m.hits { // after the buffer has its final size
			h := &m.hits[i]
			if h.limit != nil {
				h.key = unsafe.String(unsafe.SliceData(m.keys[from:]), h.keyEnd-from)
				from = h.keyEnd
			}
		}
	}
}

// matched sets the hit of a descriptor.
func (s *Service) matched(l *ruleSnapshot, req *rls.Request, i int, m *scratch) {
	d, each, h := &req.Descriptors[i], &m.matched.Matches[i], &m.hits[i]
	if each.Limit == nil || each.Replaced {
		return
	}
	h.rule = each.Limit
	if h.rule.Unlimited {
		return
	}
	if h.rule.Source == nil {
		h.brought = limit{
			unit: d.Override.Unit, requests: d.Override.RequestsPerUnit, counter: l.counters[h.rule.Domain][s.failMode][d.Override.Unit],
			counted: l.counters[h.rule.Domain][0][d.Override.Unit],
		}
		h.limit = &h.brought
	} else {
		h.limit = l.limits[h.rule]
	}
	h.stats = h.limit.stats
	if h.stats == nil {
		m.statKey = h.rule.AppendStatKey(m.statKey[:0], d.Entries)
		h.stats = s.stats.Made(m.statKey, h.rule.Domain)
	}
	h.addend, h.negative = addend(req, d), d.Negative
	if s.counting.EnvoyKeys {
		m.keys = h.rule.AppendCounterKey(m.keys, d.Entries)
		h.keyEnd = len(m.keys)
	} else {
		h.key = m.matched.Takes[each.First].Key
	}
}

// addend returns the number of hits of a descriptor, at most maxCounted.
func addend(req *rls.Request, d *rls.Descriptor) uint64 {
	if d.HasHits {
		return min(d.Hits, maxCounted)
	}
	return max(1, uint64(req.HitsAddend))
}

// nearLimit returns the threshold of the statistic near_limit. The reference computes it in 32 bits.
func (s *Service) nearLimit(requests uint32) uint64 {
	return uint64(math.Floor(float64(float32(requests) * s.counting.NearRatio)))
}
