package storetest

import (
	"context"
	"math"
	"math/big"
	"sync"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/storekit"
)

// Reference is a store that is written only from the definitions of the algorithms: slow, with one lock, exact
// fractions for buckets, and a search for every RetryAfter. It shares no code with the stores that it is compared with.
// It is safe for concurrent use.
type Reference struct {
	clock *Clock

	mu       sync.Mutex // guards the fields below
	meters   map[meterName]meter
	marks    map[meterName]markBook
	blocks   map[keyName]int64 // end of the block
	charged  map[idName]chargedID
	latest   int64 // latest time seen
	distinct map[meterName]bool
}

var (
	_ sluice.Store      = (*Reference)(nil)
	_ sluice.StoreAdmin = (*Reference)(nil)
)

// A bucket is identified by its rule's name and its key; each kind of limit has a separate state.
type (
	keyName   struct{ rule, key string }
	meterName struct {
		keyName
		kind string
	}
	idName struct {
		keyName
		id uint64
	}
)

// chargedID is a take that was charged under an idempotency ID.
type chargedID struct {
	allowed     bool
	granted, at int64
	until       int64
}

// idempotencyTTL is how long an ID is stored after its take, in microseconds.
const idempotencyTTL = int64(time.Minute / time.Microsecond)

// NewReference returns an empty reference store that uses the clock.
func NewReference(clock *Clock) *Reference {
	return &Reference{
		clock:    clock,
		meters:   map[meterName]meter{},
		marks:    map[meterName]markBook{},
		blocks:   map[keyName]int64{},
		charged:  map[idName]chargedID{},
		distinct: map[meterName]bool{},
	}
}

func nameOf(t *sluice.Take) meterName {
	return meterName{keyName{t.Rule.Name, t.Key}, kindOf(t.EffectiveLimit())}
}

func (r *Reference) meter(t *sluice.Take) meter {
	name := nameOf(t)
	m := r.meters[name]
	if m == nil {
		m = newMeter(t.EffectiveLimit())
		r.meters[name] = m
	}
	return m
}

// now returns the time of the clock in microseconds.
func (r *Reference) now() int64 {
	now := r.clock.Now().UnixMicro()
	r.latest = max(r.latest, now)
	return now
}

// Apply decides all takes, then charges all or none of them; see [sluice.Store].
func (r *Reference) Apply(ctx context.Context, takes []sluice.Take, out []sluice.Decision) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for i := range takes {
		if err := storekit.Validate(&takes[i]); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	veto, replayed := false, make([]bool, len(takes))
	for i := range takes {
		t := &takes[i]
		out[i], replayed[i] = r.replay(t, now)
		if !replayed[i] {
			out[i] = r.decide(takes[:i], out, replayed, t, now)
		}
		veto = veto || !out[i].Allowed && !t.Rule.Shadow && t.Cost != 0
	}
	for i := range takes {
		// RetryAfter is valid for the parameters of the take's limit only, so the state is converted even if nothing is
		// charged.
		was := r.meter(&takes[i])
		m := was.adopted(takes[i].EffectiveLimit(), now)
		if !takes[i].DryRun {
			name := nameOf(&takes[i])
			r.meters[name] = m
			if held, ok := was.(lacking); ok && m != was {
				r.marks[name] = r.marks[name].scaled(big.NewRat(takes[i].EffectiveLimit().Burst, held.held()))
			}
		}
		if b, ok := m.(*bucketMeter); ok && takes[i].Cost > 0 && takes[i].Receipt == 0 {
			b.begin(takes[i].EffectiveLimit(), now) // also for a denied take: its RetryAfter depends on it
			r.distinct[nameOf(&takes[i])] = true
		}
		settles := takes[i].Receipt != 0 && takes[i].Settles && !takes[i].DryRun
		if !replayed[i] && (takes[i].Cost != 0 || settles) {
			out[i] = r.commit(&takes[i], m, out[i], veto, now)
		}
		out[i].Limit = maxOf(takes[i].EffectiveLimit())
	}
	return nil
}

// decide decides a take without changing state. Granted costs of earlier takes of the same call on the same bucket are
// added to its cost.
func (r *Reference) decide(earlier []sluice.Take, out []sluice.Decision, replayed []bool, t *sluice.Take, now int64) sluice.Decision {
	if t.Receipt != 0 {
		return sluice.Decision{Allowed: true, Receipt: t.Receipt}
	}
	var pending int64
	for j := range earlier {
		if out[j].Allowed && !replayed[j] && earlier[j].Receipt == 0 && earlier[j].Cost > 0 && nameOf(&earlier[j]) == nameOf(t) {
			pending += out[j].Granted
		}
	}
	asked := *t
	if t.Cost > 0 {
		asked.Cost += pending
	}
	if t.MinGrant > 0 {
		asked.MinGrant += pending
	}
	d := r.answer(&asked, now)
	if d.Allowed && t.Cost > 0 {
		d.Granted -= pending
		r.lineUp(t, &d, now, pending)
	}
	return d
}

// lineUp denies a take of a queue whose delay is too long because of the earlier takes of the same call.
func (r *Reference) lineUp(t *sluice.Take, d *sluice.Decision, now, pending int64) {
	l := t.EffectiveLimit()
	if l.Algorithm != sluice.LeakyQueue || t.MaxDelay == 0 {
		return
	}
	queue := *r.meter(t).adopted(l, now).(*bucketMeter)
	queue.later(l, now, whole(pending))
	if late := micros(queue.hasExpired()-now) - t.MaxDelay; late > 0 {
		*d = r.answer(&sluice.Take{Rule: t.Rule, Limit: t.Limit, Key: t.Key}, now)
		d.Allowed, d.Delay, d.Receipt, d.RetryAfter = false, 0, now, late
	}
}

// answer returns the decision about a take at the time now.
func (r *Reference) answer(t *sluice.Take, now int64) sluice.Decision {
	l := t.EffectiveLimit()
	m := r.meter(t).adopted(l, now)
	if until := r.blocks[keyName{t.Rule.Name, t.Key}]; until > now {
		return blocked(m, l, t, now, until)
	}
	if t.Cost == 0 {
		d := tryCost(m, l, now, 1, t.MaxDelay)
		d.Granted, d.Remaining, d.ResetAfter = 0, m.remaining(l, now), micros(m.expiresAt(l, now)-now)
		return d
	}
	d := tryCost(m, l, now, t.Cost, t.MaxDelay)
	if !d.Allowed && t.MinGrant > 0 {
		d = tryCost(m, l, now, max(min(d.Remaining, t.Cost), t.MinGrant), t.MaxDelay)
	}
	return d
}

// blocked denies until the block ends, or for longer if the limit denies the take then.
func blocked(m meter, l *sluice.Limit, t *sluice.Take, now, until int64) sluice.Decision {
	d := sluice.Decision{Blocked: true, Receipt: now, ResetAfter: micros(max(until, m.expiresAt(l, now)) - now)}
	if least(t) > maxOf(l) {
		d.ExceedsLimit = true
		return d
	}
	d.RetryAfter = micros(max(until-now, retryAfter(m, l, now, least(t), t.MaxDelay)))
	return d
}

// least returns the cost that must be granted to allow a take; that of a peek is 1.
func least(t *sluice.Take) int64 {
	if t.MinGrant > 0 {
		return t.MinGrant
	}
	return max(1, t.Cost)
}

// commit charges the take according to its decision. On a veto it charges only if the rule charges denied requests.
func (r *Reference) commit(t *sluice.Take, m meter, d sluice.Decision, veto bool, now int64) sluice.Decision {
	l := t.EffectiveLimit()
	switch {
	case veto && !t.Rule.ChargeDenied:
		if t.Receipt == 0 && d.Allowed {
			peek := r.answer(&sluice.Take{Rule: t.Rule, Limit: t.Limit, Key: t.Key}, now)
			d.Granted, d.Remaining, d.ResetAfter, d.Delay = 0, peek.Remaining, peek.ResetAfter, peek.Delay
		}
		return d
	case t.Receipt != 0:
		if slots, ok := m.(*permitMeter); ok && t.Cost > 0 && !t.Settles {
			d = r.renew(slots, t, now)
			break
		}
		d = sluice.Decision{Allowed: true, Granted: r.settle(m, t, now), Receipt: t.Receipt}
	case !d.Allowed && !t.Rule.ChargeDenied:
		return d // denied by a shadow rule
	default:
		d = r.answer(t, now)
		switch {
		case d.Allowed:
			r.see(m, t, now)
			d.Receipt = m.spend(l, now, d.Granted, d.Receipt)
			r.mark(m, t, &d, now)
		case !t.Rule.ChargeDenied || r.isBlocked(t, now):
			return d
		default:
			r.see(m, t, now)
			m.charge(l, now, t.Cost)
			if !d.ExceedsLimit {
				d.RetryAfter = micros(retryAfter(m, l, now, least(t), t.MaxDelay))
			}
		}
	}
	d.Remaining, d.ResetAfter = m.remaining(l, now), micros(m.expiresAt(l, now)-now)
	r.distinct[nameOf(t)] = true
	r.remember(t, &d, now)
	return d
}

func (r *Reference) isBlocked(t *sluice.Take, now int64) bool {
	return r.blocks[keyName{t.Rule.Name, t.Key}] > now
}

// replay returns the decision for a take whose ID was charged: the earlier one, with the current Remaining.
func (r *Reference) replay(t *sluice.Take, now int64) (sluice.Decision, bool) {
	c, ok := r.charged[idName{keyName{t.Rule.Name, t.Key}, t.IdempotencyID}]
	if t.IdempotencyID == 0 || !ok || c.until <= now {
		return sluice.Decision{}, false
	}
	peek := r.answer(&sluice.Take{Rule: t.Rule, Limit: t.Limit, Key: t.Key}, now)
	d := sluice.Decision{
		Allowed: c.allowed, Blocked: peek.Blocked && !c.allowed, Granted: c.granted, Receipt: c.at,
		Remaining: peek.Remaining, ResetAfter: peek.ResetAfter,
	}
	l := t.EffectiveLimit()
	switch {
	case !c.allowed: // and stays denied until the ID expires
		again := r.answer(t, now)
		if d.ExceedsLimit = again.ExceedsLimit; !d.ExceedsLimit {
			d.RetryAfter = max(micros(c.until-now), again.RetryAfter)
		}
	case t.Receipt == 0 && (waits(l) || l.Algorithm == sluice.LeakyQueue):
		d.Delay = micros(c.at - now) // of its place in the queue
	}
	return d, true
}

func (r *Reference) remember(t *sluice.Take, d *sluice.Decision, now int64) {
	if t.IdempotencyID == 0 {
		return
	}
	r.charged[idName{keyName{t.Rule.Name, t.Key}, t.IdempotencyID}] = chargedID{d.Allowed, d.Granted, d.Receipt, max(d.Receipt, now) + idempotencyTTL}
}

// Reset removes the usage of a bucket and lifts its block.
func (r *Reference) Reset(ctx context.Context, b sluice.Bucket) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now()
	delete(r.meters, meterName{keyName{b.Rule.Name, b.Key}, kindOf(b.EffectiveLimit())})
	delete(r.marks, meterName{keyName{b.Rule.Name, b.Key}, kindOf(b.EffectiveLimit())})
	delete(r.blocks, keyName{b.Rule.Name, b.Key})
	return nil
}

// Block denies a bucket's takes for d; 0 lifts the block.
func (r *Reference) Block(ctx context.Context, b sluice.Bucket, d time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.blocks[keyName{b.Rule.Name, b.Key}] = r.now() + d.Microseconds()
	return nil
}

// Blocked returns the remaining time of the bucket's block, or 0 if it is not blocked.
func (r *Reference) Blocked(ctx context.Context, b sluice.Bucket) (time.Duration, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(0, micros(r.blocks[keyName{b.Rule.Name, b.Key}]-r.now())), nil
}

// Len returns the number of keys with unexpired usage plus the number of stored IDs.
func (r *Reference) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, n := r.now(), 0
	for name := range r.distinct {
		if m := r.meters[name]; m != nil && m.hasExpired() > now {
			n++
		}
	}
	for _, c := range r.charged {
		if c.until > now {
			n++
		}
	}
	return n
}

// uncertain reports whether a store may have removed state that the takes need on a clock set back to now, because it
// had expired at the latest time seen.
func (r *Reference) uncertain(takes []sluice.Take, now int64) bool {
	gone := func(at int64) bool { return at > now && at <= r.latest }
	for i := range takes {
		t := &takes[i]
		key := keyName{t.Rule.Name, t.Key}
		if gone(r.blocks[key]) || t.IdempotencyID != 0 && gone(r.charged[idName{key, t.IdempotencyID}].until) || r.meter(t).leaves(gone) {
			return true
		}
	}
	return false
}

func micros(n int64) time.Duration {
	return time.Duration(min(max(0, n), math.MaxInt64/1000)) * time.Microsecond
}
