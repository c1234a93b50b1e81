package sluice

import (
	"context"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/internal/step"
)

// debts is what this process admitted by itself while the store could not answer, and the store does not know of. It is
// charged there before the first call about the key that the store answers again, or soon if there is no such call; if it
// were not, what was left when the store went away could be had once more from each process.
type debts struct {
	keys   atomic.Int64 // that owe something
	bytes  atomic.Int64 // of the takes that are kept of them
	paid   atomic.Int64 // how often something was
	runs   atomic.Bool  // it will be paid for keys that no call asks about
	once   sync.Once
	seed   maphash.Seed
	shards []debtShard
}

type debtShard struct {
	mu   sync.Mutex // guards owed
	owed map[uint64]debt
}

type debt struct {
	amount int64
	paying int64         // besides it: what is on its way to the store
	ended  chan struct{} // is closed when that has ended
	until  time.Time     // nothing of it counts any more
	take   *Take         // for a payment without a call about the key; nil: there was no room for it
}

// size is how much memory the debt's take needs.
func (d *debt) size() int64 {
	if d.take == nil {
		return 0
	}
	return takeSize(d.take)
}

func takeSize(t *Take) int64 { return int64(unsafe.Sizeof(*t)) + int64(len(t.Key)+len(t.Slot)) }

const (
	debtShards   = 64
	maxDebts     = 1 << 18  // keys; what more keys owe is forgotten
	maxDebtBytes = 64 << 20 // of their takes; what more keys owe is paid with the next call about them
	paidAtOnce   = 64       // keys, in one call
	payMin       = 100 * time.Millisecond
	payMax       = time.Second
)

func (d *debts) shard(t *Take) (*debtShard, uint64) {
	d.once.Do(func() {
		d.seed = maphash.MakeSeed()
		d.shards = make([]debtShard, debtShards)
	})
	var h maphash.Hash
	h.SetSeed(d.seed)
	maphash.WriteComparable(&h, t.Rule.id)
	h.WriteString(t.Key)
	sum := h.Sum64()
	return &d.shards[sum%debtShards], sum
}

// add notes that the take's key owes so much more, for so long.
func (d *debts) add(t *Take, amount int64, until time.Time) {
	if amount <= 0 {
		return
	}
	shard, name := d.shard(t)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if shard.owed == nil {
		shard.owed = make(map[uint64]debt)
	}
	now := time.Now()
	was, known := shard.owed[name]
	if !known && len(shard.owed) >= maxDebts/debtShards && d.tidyLocked(shard, now) == 0 {
		bounds.Unreported.Reached()
		return
	}
	if !known {
		d.keys.Add(1)
	} else if was.until.Before(now) {
		was.amount = 0
	}
	switch size := takeSize(t); {
	case was.take != nil:
		was.take.Rule, was.take.Limit = t.Rule, t.Limit // which may have changed
	case d.bytes.Add(size) > maxDebtBytes:
		d.bytes.Add(-size)
		bounds.Unreported.Reached()
	default: // the caller's buffers end with the call
		was.take = &Take{Rule: t.Rule, Limit: t.Limit, Key: strings.Clone(t.Key), Slot: strings.Clone(t.Slot)}
	}
	if until.Before(was.until) {
		until = was.until
	}
	was.amount, was.until = was.amount+amount, until
	shard.owed[name] = was
}

// lower notes that the take's key owes so much less, because a take cost less than its estimate.
func (d *debts) lower(t *Take, amount int64) {
	if d.keys.Load() == 0 {
		return
	}
	shard, name := d.shard(t)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	owed, known := shard.owed[name]
	if !known {
		return
	}
	if owed.amount = max(0, owed.amount-amount); owed.amount == 0 && owed.paying == 0 {
		d.forgetLocked(shard, name)
		return
	}
	shard.owed[name] = owed
}

func (d *debts) forgetLocked(shard *debtShard, name uint64) {
	owed := shard.owed[name]
	d.bytes.Add(-owed.size())
	d.keys.Add(-1)
	delete(shard.owed, name)
}

// tidyLocked forgets what does not count any more, and tells how much that was.
func (d *debts) tidyLocked(shard *debtShard, now time.Time) (n int) {
	for name, owed := range shard.owed {
		if owed.until.Before(now) && owed.paying == 0 {
			d.forgetLocked(shard, name)
			n++
		}
	}
	return n
}

// unpaid forgets what does not count any more of a part of the keys, and lists takes of the others, as far as they are kept.
func (d *debts) unpaid(part int, now time.Time) (takes []Take) {
	shard := &d.shards[part]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	d.tidyLocked(shard, now)
	for _, owed := range shard.owed {
		if owed.take != nil {
			takes = append(takes, *owed.take)
		}
	}
	return takes
}

// claim has the caller pay what the take's key owes, and tell when that is done. While another pays, there is nothing to
// claim, and ended is closed when that has ended.
func (d *debts) claim(t *Take, now time.Time) (amount int64, ended <-chan struct{}) {
	shard, name := d.shard(t)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	owed := shard.owed[name]
	switch {
	case owed.paying > 0:
		return 0, owed.ended
	case owed.amount == 0:
		return 0, nil
	case owed.until.Before(now):
		d.forgetLocked(shard, name)
		return 0, nil
	}
	shard.owed[name] = debt{paying: owed.amount, ended: make(chan struct{}), until: owed.until, take: owed.take}
	return owed.amount, nil
}

// settle ends a payment, of which a part is owed as before.
func (d *debts) settle(t *Take, still int64) {
	shard, name := d.shard(t)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	owed := shard.owed[name] // which stays while it is being paid
	close(owed.ended)
	owed.amount, owed.paying, owed.ended = owed.amount+still, 0, nil
	if shard.owed[name] = owed; owed.amount == 0 {
		d.forgetLocked(shard, name)
	}
}

// outstanding is what the take's key owes and the store may not know of, payments on their way included.
func (d *debts) outstanding(t *Take, now time.Time) int64 {
	if d.keys.Load() == 0 {
		return 0
	}
	shard, name := d.shard(t)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	owed := shard.owed[name]
	if owed.until.Before(now) {
		return 0
	}
	return owed.amount + owed.paying
}

// pay charges the store what the takes' keys owe, or waits until another caller has. It takes no more than there is: what
// was admitted beyond the limit while processes did not know of each other is not charged to later requests. So no other call may
// come before it: a call that did would be admitted what this process has admitted already.
func (l *Limiter) pay(ctx context.Context, takes []Take) error {
	for l.debts.keys.Load() > 0 {
		ended, err := l.payOwn(ctx, takes)
		if err != nil || ended == nil {
			return err
		}
		select { // with nothing claimed, so that two calls cannot wait for each other
		case <-ended:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// payOwn pays what no other caller is paying. If one is, ended is closed when that has ended.
func (l *Limiter) payOwn(ctx context.Context, takes []Take) (ended <-chan struct{}, err error) {
	now := time.Now()
	var charges []Take
	for i := range takes {
		t := &takes[i]
		if t.Rule.OnFailure != FailLocal || t.Cost == 0 {
			continue
		}
		owed, other := l.debts.claim(t, now)
		if other != nil {
			ended = other
		}
		if owed == 0 {
			continue
		}
		// What has worn off here has worn off there. What this process thinks spent is its part of what the store knows,
		// and what it admitted since; so charging the lesser of that and of what it admitted is never too little.
		amount := min(owed, l.spentHere(t, now))
		if amount <= 0 {
			l.debts.settle(t, 0)
			continue
		}
		rule := *t.Rule
		rule.Shadow, rule.ChargeDenied = true, false // it denies nobody anything
		charges = append(charges, Take{Rule: &rule, Limit: t.Limit, Key: t.Key, Slot: t.Slot, Cost: amount, Min: 1})
	}
	if len(charges) == 0 {
		return ended, nil
	}
	err = l.guard.store.Apply(ctx, charges, make([]Decision, len(charges)))
	for i := range charges {
		still := int64(0)
		if err != nil { // it may have been charged; if so, twice
			still = charges[i].Cost
		}
		l.debts.settle(&charges[i], still)
	}
	if err == nil {
		l.debts.paid.Add(1)
	}
	return ended, err
}

// payLater has what is owed paid soon also if no call asks about the keys.
func (l *Limiter) payLater() {
	if l.debts.runs.CompareAndSwap(false, true) {
		l.payAfter(payMin)
	}
}

// payAfter pays after so long, and again until nothing is owed.
func (l *Limiter) payAfter(wait time.Duration) {
	time.AfterFunc(wait, func() {
		l.leases.start(func() { // unless the limiter is closed, which has paid
			if l.payAll(context.Background()) {
				l.payAfter(min(2*wait, payMax))
				return
			}
			l.debts.runs.Store(false)
			if l.debts.bytes.Load() > 0 { // since
				l.payLater()
			}
		})
	})
}

// payAll pays once what is owed, and reports whether something is left. It makes one call at a time, so that a server that
// has just come back is not asked about all keys at once. Of a server that does not answer one call is enough.
func (l *Limiter) payAll(ctx context.Context) (left bool) {
	if l.debts.keys.Load() == 0 {
		return false
	}
	away := make(map[int]bool)
	for part := range debtShards {
		of := make(map[int][]Take) // by server
		for _, t := range l.debts.unpaid(part, time.Now()) {
			t.Cost = 1 // else it would be a peek, which does not pay
			server := l.guard.store.Server(&t)
			of[server] = append(of[server], t)
		}
		for server, takes := range of {
			for some := range slices.Chunk(takes, paidAtOnce) {
				if away[server] = away[server] || !l.payFor(ctx, some); away[server] {
					left = true
					break
				}
			}
		}
	}
	return left
}

// payFor pays for keys of one server, unless that is given a rest, and reports whether it did.
func (l *Limiter) payFor(ctx context.Context, takes []Take) bool {
	now := time.Now()
	if !l.leases.closed.Load() && !l.passes(ctx, &takes[0], now) {
		return false
	}
	within, done := l.guard.within(ctx, now)
	defer done()
	_, err := l.payOwn(within, takes) // what another caller is paying is paid, or found again
	return err == nil
}

// spentHere is what of this process' part of the limit is spent.
func (l *Limiter) spentHere(t *Take, now time.Time) int64 {
	p := l.shareOf(t.Effective()).Params()
	local := l.local.open()
	a := local.Take(local.Hash(t.Rule.id, t.Key), p, now.UnixMicro(), step.Request{
		Dry: true, Known: t.Rule.Known(&local.Rules).With(p),
	})
	return p.Limit() - a.Remaining
}
