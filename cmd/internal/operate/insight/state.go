package insight

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluiceproject/sluice"
)

// epoch is how long counts of keys are collected before they are halved.
const epoch = 24 * time.Hour

const (
	second      = int64(time.Second / time.Microsecond)
	minute      = 60 * second
	epochMicros = int64(epoch / time.Microsecond)
)

// state is the record of one limit. Until its first decision it has no sketch.
type state struct {
	rule  *sluice.Rule
	limit string // text of the limit
	since int64  // µs; when recording began

	name     atomic.Pointer[string]
	keyless  atomic.Bool // one key for all requests
	security atomic.Bool

	opening sync.Mutex
	sketch  atomic.Pointer[sketch]
	judged  judged
}

func (s *state) describe(name string, per []string, security bool) {
	s.name.Store(&name)
	s.keyless.Store(len(per) == 0)
	s.security.Store(security)
}

// sketch is the bounded memory of a limit's decisions.
type sketch struct {
	minute          atomic.Int64 // of the counters
	allowed, denied atomic.Int64 // in the current minute
	peak            [2]atomic.Int64
	seen, refused   [2]distinct // keys, and denied keys, in this and the previous epoch
	// Decisions about keys with a smaller hash, or whose bit is set, are followed.
	below atomic.Uint64
	watch [watchBits / 64]atomic.Uint64

	mu           sync.Mutex // guards the fields below
	fine, coarse ring
	turned       int64 // µs; when the epoch began
	weight       int64 // denials, halved with those of keys
	keys         *followed
	ladders      []*ladder // the first is that of the rule's own limit
}

// watchBits is the size of the filter of followed keys.
const watchBits = 2048

// maxLadders is the maximum number of limits under one rule, such as tiers, whose keys are followed.
const maxLadders = 8

func (s *state) detailed() bool { return s.sketch.Load() != nil }

func (s *state) open(r *Recorder, now int64) *sketch {
	s.opening.Lock()
	defer s.opening.Unlock()
	if k := s.sketch.Load(); k != nil {
		return k
	}
	k := &sketch{
		fine:   ring{cells: make([]cell, fineSlots), every: fineMinutes, last: now / minute / fineMinutes},
		coarse: ring{cells: make([]cell, coarseSlots), every: coarseMinutes, last: now / minute / coarseMinutes},
		turned: now, keys: newFollowed(r.sizes()), ladders: []*ladder{newLadder(&s.rule.Limit)},
	}
	k.minute.Store(now / minute)
	k.below.Store(k.keys.allBelow)
	s.sketch.Store(k)
	return k
}

// record records a decision. It takes the lock only for denials, for followed keys and for keys near the end of a fixed
// window.
func (s *state) record(r *Recorder, t *sluice.Take, d *sluice.Decision) {
	now := r.micros()
	k := s.sketch.Load()
	if k == nil {
		k = s.open(r, now)
	}
	if now/minute > k.minute.Load() {
		k.mu.Lock()
		k.turn(now)
		k.mu.Unlock()
	}
	in := decision{
		key: t.Key, hash: r.hash(t.Key), now: now, cost: t.Cost, denied: !d.Allowed || d.ShadowDenied, granted: d.Granted,
		retryAfter: d.RetryAfter.Microseconds(), resetAfter: d.ResetAfter.Microseconds(),
	}
	k.seen[0].add(in.hash)
	if in.denied {
		k.denied.Add(1)
		k.refused[0].add(in.hash)
		in.use = 1000
	} else {
		k.allowed.Add(1)
		if d.Granted > 0 && d.Limit > 0 {
			remaining := min(max(0, d.Remaining), d.Limit)
			in.use = useOf(d.Limit-remaining, d.Limit)
			in.near = 5*remaining < d.Limit
		}
	}
	raise(&k.peak[0], in.use)
	bit := in.hash >> 16 % watchBits
	if in.hash < k.below.Load() || in.denied || in.near && s.rule.Limit.Algorithm == sluice.FixedWindow || k.watch[bit/64].Load()>>(bit%64)&1 == 1 {
		k.follow(t, &in)
	}
}

// useOf returns the used part of a limit in thousandths.
func useOf(used, limit int64) int64 {
	if used > 1<<50 {
		return used / (limit/1000 + 1)
	}
	return used * 1000 / limit
}

func raise(p *atomic.Int64, n int64) {
	for {
		old := p.Load()
		if n <= old || p.CompareAndSwap(old, n) {
			return
		}
	}
}

func (k *sketch) follow(t *sluice.Take, d *decision) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.ladderOf(t)
	if l == nil {
		return
	}
	if d.denied {
		k.weight++
	}
	k.keys.add(l, d)
	k.below.Store(k.keys.allBelow)
	if bit := d.hash >> 16 % watchBits; k.keys.find(d.hash) >= 0 {
		w := &k.watch[bit/64]
		w.Or(1 << (bit % 64))
	}
	if k.keys.dropped >= watchBits/64 {
		k.rewatch()
	}
}

// rewatch clears the bits of keys that are no longer followed.
func (k *sketch) rewatch() {
	var bits [watchBits / 64]uint64
	for _, h := range k.keys.hashes {
		bit := h >> 16 % watchBits
		bits[bit/64] |= 1 << (bit % 64)
	}
	for i := range bits {
		k.watch[i].Store(bits[i])
	}
	k.keys.dropped = 0
}

// ladderOf returns the ladder of the take's limit, or nil if the rule has too many limits.
func (k *sketch) ladderOf(t *sluice.Take) *ladder {
	limit := t.Limit
	if limit == nil {
		return k.ladders[0]
	}
	for _, l := range k.ladders {
		if l.limit == limit || *l.limit == *limit {
			return l
		}
	}
	if len(k.ladders) == maxLadders {
		return nil
	}
	l := newLadder(limit)
	k.ladders = append(k.ladders, l)
	return l
}

// turn moves the counters of the current minute into the rings, and begins an epoch if it is time. The lock must be held.
func (k *sketch) turn(now int64) {
	was := k.minute.Load()
	allowed, denied := k.allowed.Swap(0), k.denied.Swap(0)
	for _, r := range [...]*ring{&k.fine, &k.coarse} {
		r.forward(was).add(allowed, denied)
		r.forward(now / minute)
	}
	k.minute.Store(max(was, now/minute))
	if now-k.turned < epochMicros {
		return
	}
	for passed := min((now-k.turned)/epochMicros, 2); passed > 0; passed-- {
		for _, d := range []*[2]distinct{&k.seen, &k.refused} {
			d[1].takeOver(&d[0])
		}
		k.peak[1].Store(k.peak[0].Swap(0))
		k.weight /= 2
		k.keys.forget(now, now-2*epochMicros)
	}
	k.turned = now
	k.below.Store(k.keys.allBelow)
	k.rewatch()
}
