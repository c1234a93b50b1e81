package sluice

import (
	"hash/maphash"
	"sync"
	"time"
)

// denials remembers refused takes for a short while, so that a caller who hammers at a spent limit costs the store
// nothing. It is consulted before a [Remote] store, never remembers longer than the decision's RetryAfter or a second,
// and answers only for the same limit and cost: a larger one has to wait longer, or can never fit. What it forgets, or
// never had, is asked of the store: it may forget whatever it likes.
//
// A refund or a reset at the store is seen up to a second late by processes that remember a denial.
type denials struct {
	once   sync.Once
	seed   maphash.Seed
	shards []denialShard
}

const (
	denialShards = 64
	denialSlots  = 64 // a shard
	denialTime   = time.Second
)

type denialShard struct {
	mu    sync.Mutex // guards slots
	slots [denialSlots]denial
}

type denial struct {
	hash   uint64
	limit  *Limit // the very limit: a changed one is another
	rule   *Rule
	cost   int64
	at     time.Time // when it was decided
	until  time.Time
	answer Decision
}

func (d *denials) init() {
	d.once.Do(func() {
		d.seed = maphash.MakeSeed()
		d.shards = make([]denialShard, denialShards)
	})
}

// remembers tells whether a denial of the take may be answered from memory: it must ask for nothing but its cost, and
// its refusals must not be counted. A rule with Eventual accuracy believes quantities, never verdicts.
func remembers(t *Take) bool {
	return t.Rule.Accuracy != Eventual && t.Cost > 0 && t.At == 0 && t.ID == 0 && t.Min == 0 && t.MaxDelay == 0 &&
		!t.Rule.ChargeDenied && !t.Rule.Shadow && !t.Effective().frees()
}

// frees tells that there may be room before RetryAfter though nobody gives back a charge: a queue knows no RetryAfter of
// places, and whatever is in flight may end.
func (l *Limit) frees() bool { return l.Algorithm == LeakyQueue || l.Algorithm == Concurrency }

func (d *denials) slot(t *Take) (*denialShard, *denial, uint64) {
	d.init()
	var h maphash.Hash
	h.SetSeed(d.seed)
	id := t.Rule.Identity()
	maphash.WriteComparable(&h, id)
	h.WriteString(t.Key)
	sum := h.Sum64()
	shard := &d.shards[sum%denialShards]
	return shard, &shard.slots[sum/denialShards%denialSlots], sum
}

// answer fills out if one of the takes is known to be refused. A call with a take whose refusals count is never
// answered from memory.
func (d *denials) answer(takes []Take, out []Decision, now time.Time) bool {
	denied := -1
	for i := range takes {
		if t := &takes[i]; t.Rule.ChargeDenied || t.At != 0 || t.Rule.Shadow && t.Cost > 0 {
			return false
		}
		if denied < 0 && remembers(&takes[i]) && d.known(&takes[i], &out[i], now) {
			denied = i
		}
	}
	if denied < 0 {
		return false
	}
	for i := range takes {
		if i != denied { // not asked: it would not have been charged either
			out[i] = Decision{Allowed: true, Source: SourceCache, Limit: takes[i].Effective().Params().Limit()}
		}
	}
	return true
}

func (d *denials) known(t *Take, out *Decision, now time.Time) bool {
	shard, slot, sum := d.slot(t)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if slot.hash != sum || slot.rule != t.Rule || slot.limit != t.Effective() || t.Cost != slot.cost || !now.Before(slot.until) {
		return false
	}
	*out = slot.answer
	elapsed := now.Sub(slot.at)
	out.Source = SourceCache
	out.RetryAfter = max(0, out.RetryAfter-elapsed)
	out.ResetAfter = max(0, out.ResetAfter-elapsed)
	return true
}

// remember notes the takes that the store refused.
func (d *denials) remember(takes []Take, out []Decision, now time.Time) {
	for i := range takes {
		t, o := &takes[i], &out[i]
		if o.Allowed || o.Never || o.RetryAfter <= 0 || !remembers(t) {
			continue
		}
		shard, slot, sum := d.slot(t)
		shard.mu.Lock()
		*slot = denial{sum, t.Effective(), t.Rule, t.Cost, now, now.Add(min(o.RetryAfter, denialTime)), *o}
		shard.mu.Unlock()
	}
}

// forget forgets that a key was refused.
func (d *denials) forget(r *Rule, key string) {
	shard, slot, sum := d.slot(&Take{Rule: r, Key: key})
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if slot.hash == sum {
		*slot = denial{}
	}
}
