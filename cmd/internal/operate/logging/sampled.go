package logging

import (
	"context"
	"hash/maphash"
	"log/slog"
	"sync/atomic"
	"time"
)

// sampleLimiter admits a burst and then one per interval, and counts the others. It costs one read of the clock and one
// atomic operation.
type sampleLimiter struct {
	start  time.Time
	every  time.Duration
	burst  int64
	next   atomic.Int64 // nanoseconds from start until the admitted ones have expired
	missed atomic.Int64
}

func (p *sampleLimiter) init(burst int64, every time.Duration) {
	p.start, p.burst, p.every = time.Now(), burst, every
}

// take reports whether one more is admitted and, if so, returns the number of those not admitted since the previous one.
func (p *sampleLimiter) take() (missed int64, ok bool) {
	now := int64(time.Since(p.start))
	for {
		old := p.next.Load()
		next := max(old, now) + int64(p.every)
		if next-now > p.burst*int64(p.every) {
			p.missed.Add(1)
			return 0, false
		}
		if p.next.CompareAndSwap(old, next) {
			return p.missed.Swap(0), true
		}
	}
}

// Rare logs an event that affects many requests at once: one line, and then at most one every 5 s with the number of
// omitted lines as "suppressed". It is safe for concurrent use.
type Rare struct {
	log     *slog.Logger
	limiter sampleLimiter
}

// NewRare returns a Rare that writes to log.
func NewRare(log *slog.Logger) *Rare {
	r := &Rare{log: log}
	r.limiter.init(1, complaintInterval)
	return r
}

// Warn logs a warning, unless one was logged in the last 5 s.
func (r *Rare) Warn(text string, args ...any) {
	missed, ok := r.limiter.take()
	if !ok {
		return
	}
	if missed > 0 {
		args = append(args, "suppressed", missed)
	}
	r.log.Warn(text, args...)
}

// Bounds for lines with the same message: enough for all errors of a file, but not one line per failed request.
const (
	maxBurst          = 30
	complaintInterval = 5 * time.Second
	slots             = 64
)

// sampled omits lines with a message that was written too often.
type sampled struct {
	slog.Handler
	seed  maphash.Seed
	slots *[slots]sampleLimiter // by hash of the message
}

// Sampled returns a handler that writes each message up to 30 times at once and then every 5 s, with the number of omitted
// lines as "suppressed". Level info is not sampled.
func Sampled(h slog.Handler) slog.Handler {
	s := sampled{h, maphash.MakeSeed(), new([slots]sampleLimiter)}
	for i := range s.slots {
		s.slots[i].init(maxBurst, complaintInterval)
	}
	return s
}

func (s sampled) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo && r.Level < slog.LevelWarn {
		return s.Handler.Handle(ctx, r)
	}
	missed, ok := s.slots[maphash.String(s.seed, r.Message)%slots].take()
	if !ok {
		return nil
	}
	if missed > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int64("suppressed", missed))
	}
	return s.Handler.Handle(ctx, r)
}

func (s sampled) WithAttrs(attrs []slog.Attr) slog.Handler {
	s.Handler = s.Handler.WithAttrs(attrs)
	return s
}

func (s sampled) WithGroup(name string) slog.Handler {
	s.Handler = s.Handler.WithGroup(name)
	return s
}
