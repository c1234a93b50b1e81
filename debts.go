package sluice

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluiceproject/sluice/internal/step"
)

// debts is what this process admitted by itself while the store could not answer, and the store does not know of. It is
// charged there with the first call about the key that the store answers again; if it were not, what was left when the
// store went away could be had once more from each process.
//
// Nothing is sent but with such a call, so that a store that comes back is not asked about all keys at once.
type debts struct {
	keys   atomic.Int64 // that owe something
	paid   atomic.Int64 // how often something was
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
}

const (
	debtShards = 64
	maxDebts   = 1 << 18 // keys; what more keys owe is forgotten
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
		return
	}
	if !known {
		d.keys.Add(1)
	} else if was.until.Before(now) {
		was.amount = 0
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
		delete(shard.owed, name)
		d.keys.Add(-1)
		return
	}
	shard.owed[name] = owed
}

// tidyLocked forgets what does not count any more, and tells how much that was.
func (d *debts) tidyLocked(shard *debtShard, now time.Time) (n int) {
	for name, owed := range shard.owed {
		if owed.until.Before(now) && owed.paying == 0 {
			delete(shard.owed, name)
			n++
		}
	}
	d.keys.Add(int64(-n))
	return n
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
		delete(shard.owed, name)
		d.keys.Add(-1)
		return 0, nil
	}
	shard.owed[name] = debt{paying: owed.amount, ended: make(chan struct{}), until: owed.until}
	return owed.amount, nil
}

// settle ends a payment, of which a part is owed as before.
func (d *debts) settle(t *Take, still int64) {
	shard, name := d.shard(t)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	owed := shard.owed[name] // which stays while it is being paid
	close(owed.ended)
	owed = debt{amount: owed.amount + still, until: owed.until}
	if owed.amount == 0 {
		delete(shard.owed, name)
		d.keys.Add(-1)
		return
	}
	shard.owed[name] = owed
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

// spentHere is what of this process' part of the limit is spent.
func (l *Limiter) spentHere(t *Take, now time.Time) int64 {
	p := l.shareOf(t.Effective()).Params()
	local := l.local.open()
	a := local.Take(local.Hash(t.Rule.id, t.Key), p, now.UnixMicro(), step.Request{
		Dry: true, Known: t.Rule.Known(&local.Rules).With(p),
	})
	return p.Limit() - a.Remaining
}
