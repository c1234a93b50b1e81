package envoyratelimit

import (
	"context"
	"math"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluiceproject/sluice"
)

// count adds the hits of a request to their counters.
func (s *Service) count(ctx context.Context, m *scratch) error {
	now := s.now()
	cached := s.tally(m, now)
	if s.counting.StopWhenOver && !cached {
		if err := s.peek(ctx, m, now); err != nil {
			return err
		}
	}
	over := false
	for i := range m.hits {
		over = over || m.hits[i].over
	}
	for i := range m.hits {
		h := &m.hits[i]
		h.charge = h.addend
		// With this setting a denied request is only counted in the limits that deny it.
		if s.counting.StopWhenOver && !h.negative && (cached || over && !h.over) {
			h.charge = 0
		}
	}
	return s.charge(ctx, m, now)
}

// tally counts the hits in the statistics and reports whether the local cache contains an exceeded limit of the request.
func (s *Service) tally(m *scratch, now time.Time) (cached bool) {
	for i := range m.hits {
		h := &m.hits[i]
		switch {
		case h.limit == nil:
			continue
		case h.negative:
			h.stats.TotalNegativeHits.Add(h.addend)
			continue
		}
		h.stats.TotalHits.Add(h.addend)
		if s.cache == nil {
			continue
		}
		if h.cached, h.removals = s.cache.has(h.limit.counted, h.limit.requests, h.key, now.Unix()); h.cached {
			cached = true
			h.share = h.limit.requests
			h.reset = untilReset(h.limit.unit.Seconds(), now)
		}
	}
	return cached
}

// peek determines the limits that the request would exceed.
func (s *Service) peek(ctx context.Context, m *scratch, now time.Time) error {
	for i := range m.hits {
		m.hits[i].charge = 0
	}
	if err := s.charge(ctx, m, now); err != nil {
		return err
	}
	for i := range m.hits {
		h := &m.hits[i]
		h.over = h.take >= 0 && !h.negative && h.after+h.addend > uint64(h.share)
	}
	return nil
}

// charge adds the charges to the counters and reads the new counts.
func (s *Service) charge(ctx context.Context, m *scratch, now time.Time) error {
	m.takes = m.takes[:0]
	for i := range m.hits {
		h := &m.hits[i]
		h.take = -1
		if h.limit == nil || h.cached {
			continue
		}
		// In a store call, a take without cost reads the count before the call. Here it must include the preceding hits of
		// the request.
		if h.take = m.before(i); h.take >= 0 {
			continue
		}
		h.take = len(m.takes)
		t := sluice.Take{Rule: h.limit.counter, Key: h.key, Cost: int64(h.charge)}
		if h.negative && h.charge > 0 {
			t.Cost, t.Receipt = -t.Cost, now.UnixMicro()
		}
		m.takes = append(m.takes, t)
	}
	if len(m.takes) == 0 {
		return nil
	}
	for len(m.out) < len(m.takes) {
		m.out = append(m.out, sluice.Decision{})
	}
	if _, err := s.limiter.Decide(ctx, m.takes, m.out); err != nil {
		if ctx.Err() != nil { // the client cancelled the request
			return status.FromContextError(ctx.Err()).Err()
		}
		s.stats.RedisError.Add(1)
		return status.Error(codes.Unknown, err.Error())
	}
	return s.counted(m, now)
}

// before returns the index of the last take before hit i with the same counter, or -1.
func (m *scratch) before(i int) int {
	h := &m.hits[i]
	if h.charge != 0 {
		return -1
	}
	for j := i - 1; j >= 0; j-- {
		if o := &m.hits[j]; o.take >= 0 && o.limit.unit == h.limit.unit && o.key == h.key {
			return o.take
		}
	}
	return -1
}

// counted reads the counts from the decisions of the store or of the fail modes.
func (s *Service) counted(m *scratch, now time.Time) error {
	failed, fatal := false, false
	for i := range m.hits {
		h := &m.hits[i]
		if h.take < 0 {
			continue
		}
		d := &m.out[h.take]
		if h.negative && s.cache != nil {
			s.cache.remove(h.limit.counted, h.key)
		}
		h.failed, h.share = d.Source, h.limit.requests
		failed = failed || d.Source.Degraded()
		fatal = fatal || d.Source == sluice.SourceFailClosed && !h.limit.closed && s.counting.OnFailure == "error"
		h.after = uint64(d.Limit - d.Remaining)
		if !d.Allowed && h.charge > 0 && !h.negative { // the counter would overflow
			h.after = maxCounted + 1
		}
		if d.Source == sluice.SourceFailOpen {
			// An unknown count is 0 and is compared with the limit, as in the reference with Memcached: an outage does not allow
			// requests with a limit of 0 or with more hits than the limit.
			h.after = 0
			if !h.negative {
				h.after = h.charge
			}
		}
		if d.Source == sluice.SourceFailLocal {
			// The limiter divided the counter by the number of instances, so the limit is divided by it too.
			nodes := math.Round(maxCounted / float64(max(1, d.Limit)))
			h.share = uint32(math.Ceil(float64(h.limit.requests) / nodes))
		}
		seconds := h.limit.unit.Seconds()
		if h.reset = int64(math.Ceil(d.ResetAfter.Seconds())); h.reset < 1 || h.reset > seconds {
			h.reset = untilReset(seconds, now)
		}
	}
	if failed {
		s.stats.RedisError.Add(1)
	} else if s.counts != nil {
		s.counts()
	}
	if fatal {
		words := "store unavailable"
		if last := s.lastError.Load(); last != nil {
			words = *last
		}
		return status.Error(codes.Unknown, words)
	}
	return nil
}

// untilReset returns the seconds until the end of the current window of the given length.
func untilReset(seconds int64, now time.Time) int64 { return seconds - now.Unix()%seconds }
