package memcachestore

import (
	"slices"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
)

// item is the complete state of one key under one rule: a block, the buckets, and the charges of takes with an ID. It
// is one value of the backend, so that one swap changes all of it or nothing.
type item struct {
	blocked int64          // end of the block
	buckets []bucket       // usually one; more while a rule's kind of limit changes
	charges []chargeRecord // in the order in which they were made
	spare   [1]bucket      // saves the allocation of the first
}

// bucket is the state of one kind of limit.
type bucket struct {
	identity uint64 // of the kind
	state    step.State
	words    []uint64 // of wide kinds
}

// chargeRecord is the record of a charged take with an ID.
type chargeRecord struct {
	id      uint64
	at      int64 // receipt of the take
	until   int64 // when the record expires
	granted int64
	denied  bool
	voided  bool // refunded as part of a denied call, so it does not count
	fresh   bool // made by this call and not stored yet
}

func (it *item) bucket(p *step.Params) *bucket {
	for i := range it.buckets {
		if it.buckets[i].identity == p.Identity() {
			return &it.buckets[i]
		}
	}
	return nil
}

// bucketFor returns the bucket with room for one more take. A new bucket is empty, and is stored only if that changes.
func (it *item) bucketFor(p *step.Params, now int64, settles bool) *bucket {
	b := it.bucket(p)
	if b == nil {
		if it.buckets == nil {
			it.buckets = it.spare[:0]
		}
		it.buckets = append(it.buckets, bucket{identity: p.Identity()})
		b = &it.buckets[len(it.buckets)-1]
	}
	need := p.Words(b.state, b.words, now, settles)
	switch {
	case need == 0:
	case b.state.ExpiresAt <= now: // the words have expired, and may be more than needed now
		b.words = make([]uint64, need)
	case need > len(b.words):
		larger := make([]uint64, need)
		p.GrowWords(b.words, larger)
		b.words = larger
	}
	return b
}

// take applies a request.
func (it *item) take(p *step.Params, now int64, r step.Request) step.Answer {
	if it.blocked > now {
		return it.takeBlocked(p, now, r)
	}
	return it.takeFree(p, now, r)
}

// takeBlocked denies a request until the block ends, or for longer if the limit would deny it then.
func (it *item) takeBlocked(p *step.Params, now int64, r step.Request) step.Answer {
	if !r.DryRun {
		it.adopt(p, now, r.Known, p.HasInitial && r.Cost > 0)
	}
	r.DryRun = true
	free := it.takeFree(p, now, r)
	idle := it.takeFree(p, now, step.Request{DryRun: true, Known: r.Known})
	return group.Blocked(&free, &idle, now, it.blocked)
}

// takeFree applies a request to a key that is not blocked.
func (it *item) takeFree(p *step.Params, now int64, r step.Request) step.Answer {
	if r.DryRun || r.Cost == 0 {
		b := it.bucket(p)
		if b == nil {
			b = &bucket{words: make([]uint64, p.Words(step.State{}, nil, now, false))}
		}
		_, a := p.Take(r.Known.Before(p, b.state), b.words, now, r)
		return a
	}
	b := it.bucketFor(p, now, r.Settles)
	var a step.Answer
	b.state, a = p.Take(r.Known.Before(p, b.state), b.words, now, r)
	b.prune(p)
	return a
}

// adjust settles or refunds an earlier take.
func (it *item) adjust(p *step.Params, now int64, x step.Settlement) step.Answer {
	b := it.bucketFor(p, now, false)
	var a step.Answer
	b.state, a = p.Adjust(x.Known.Before(p, b.state), b.words, now, x)
	b.prune(p)
	return a
}

// prune removes empty words: those of a bucket without a mark.
func (b *bucket) prune(p *step.Params) {
	if !p.Wide(b.words) {
		b.words = nil
	}
}

// adopt converts a state that was written under other limit parameters even though nothing is charged, because the
// decision's RetryAfter is valid for the new parameters only. If begin is set, it starts a new bucket for a key without
// one, for the same reason.
func (it *item) adopt(p *step.Params, now int64, known *step.Known, begin bool) {
	b := it.bucket(p)
	live := b != nil && b.state.ExpiresAt > now
	if live && b.state.Shape == p.Shape() || !live && !begin {
		return
	}
	b = it.bucketFor(p, now, false)
	b.state, _ = p.Take(known.Before(p, b.state), b.words, now, step.Request{Begin: begin, Known: known}) // charges nothing
	b.prune(p)
}

// reset removes the state of one kind and lifts the block.
func (it *item) reset(p *step.Params) {
	it.blocked = 0
	it.buckets = slices.DeleteFunc(it.buckets, func(b bucket) bool { return b.identity == p.Identity() })
}

// charge returns the item's record of an ID, or nil.
func (it *item) charge(id uint64, now int64) *chargeRecord {
	for i := range it.charges {
		if c := &it.charges[i]; c.id == id && c.until > now {
			return c
		}
	}
	return nil
}

// remember records that a take with an ID was charged.
func (it *item) remember(id uint64, a *step.Answer, now int64) {
	it.forget(id)
	it.charges = append(it.charges, chargeRecord{
		id: id, at: a.At, until: max(a.At, now) + group.IdempotencyTTL, granted: a.Granted, denied: !a.Allowed, fresh: true,
	})
}

// voidCharge marks the charge of an ID as void. Removing its record is not enough, because another process may be about
// to move it to a separate key.
func (it *item) voidCharge(id uint64, now int64) {
	it.forget(id)
	it.charges = append(it.charges, chargeRecord{id: id, at: now, until: now + group.IdempotencyTTL, voided: true, fresh: true})
}

func (it *item) forget(id uint64) {
	it.charges = slices.DeleteFunc(it.charges, func(c chargeRecord) bool { return c.id == id })
}

// tidy removes expired parts.
func (it *item) tidy(now int64) {
	if it.blocked <= now {
		it.blocked = 0
	}
	it.buckets = slices.DeleteFunc(it.buckets, func(b bucket) bool { return b.state.ExpiresAt <= now })
	it.charges = slices.DeleteFunc(it.charges, func(c chargeRecord) bool { return c.until <= now })
}

// expiresAt returns when all of the item has expired.
func (it *item) expiresAt() int64 {
	at := it.blocked
	for i := range it.buckets {
		at = max(at, it.buckets[i].state.ExpiresAt)
	}
	for i := range it.charges {
		at = max(at, it.charges[i].until)
	}
	return at
}
