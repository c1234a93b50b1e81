package remote

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
)

// denyCache remembers refused takes for a short while, so that a caller who hammers at a spent limit costs the store
// nothing. It is consulted before a remote store, never remembers longer than the decision's RetryAfter or a second,
// and answers only for the same limit and cost: a larger one has to wait longer, or can never fit. What it forgets, or
// never had, is asked of the store: it may forget whatever it likes.
//
// A refund or a reset at the store is seen up to a second late by processes that remember a denial.
type denyCache struct {
	seed   maphash.Seed
	shards []denyCacheShard
}

const (
	denyCacheShards  = 64
	denyCacheEntries = 64 // a shard
	denyCacheTTL     = time.Second
)

type denyCacheShard struct {
	mu    sync.Mutex // guards slots
	slots [denyCacheEntries]cachedDenial
}

type cachedDenial struct {
	hash      uint64
	limit     *step.Params // the very limit: a changed one is another
	rule      *group.Rule
	cost      int64
	at        time.Time // when it was decided
	expiresAt time.Time
	answer    group.Answer
}

func (d *denyCache) init() {
	d.seed = maphash.MakeSeed()
	d.shards = make([]denyCacheShard, denyCacheShards)
}

// cacheable reports whether a denial of the take may be answered from memory: it must ask for nothing but its cost, and
// its refusals must not be counted. Of a rule with eventual accuracy quantities are remembered, never verdicts.
func cacheable(t *group.Op) bool {
	return t.By.Accuracy != group.AccuracyEventual && t.Request.Cost > 0 && t.At == 0 && t.ID == 0 && t.Request.Min == 0 && t.Request.MaxDelay == 0 &&
		!t.By.ChargeDenied && !t.By.Shadow && !mayFreeEarly(t.Params)
}

// mayFreeEarly tells that there may be room before RetryAfter though nobody gives back a charge: a queue knows no RetryAfter of
// places, and whatever is in flight may end.
func mayFreeEarly(p *step.Params) bool { return p.Queue || p.Kind == step.Permits }

func (d *denyCache) slot(rule group.RuleID, key string) (*denyCacheShard, *cachedDenial, uint64) {
	var h maphash.Hash
	h.SetSeed(d.seed)
	maphash.WriteComparable(&h, rule)
	h.WriteString(key)
	sum := h.Sum64()
	shard := &d.shards[sum%denyCacheShards]
	return shard, &shard.slots[sum/denyCacheShards%denyCacheEntries], sum
}

// lookup fills out if one of the takes is known to be refused. A call with a take whose refusals count is never
// answered from memory.
func (d *denyCache) lookup(takes []group.Op, out []group.Answer, now time.Time) bool {
	denied := -1
	for i := range takes {
		if t := &takes[i]; t.By.ChargeDenied || t.At != 0 || t.By.Shadow && t.Request.Cost > 0 {
			return false
		}
		if denied < 0 && cacheable(&takes[i]) && d.known(&takes[i], &out[i], now) {
			denied = i
		}
	}
	if denied < 0 {
		return false
	}
	for i := range takes {
		if i != denied { // not asked: it would not have been charged either
			out[i] = group.Answer{Allowed: true, Source: group.SourceDenyCache, Limit: takes[i].Params.Limit()}
		}
	}
	return true
}

func (d *denyCache) known(t *group.Op, out *group.Answer, now time.Time) bool {
	shard, slot, sum := d.slot(t.Rule, t.Key)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if slot.hash != sum || slot.rule != t.By || slot.limit != t.Params || t.Request.Cost != slot.cost || !now.Before(slot.expiresAt) {
		return false
	}
	*out = slot.answer
	elapsed := now.Sub(slot.at)
	out.Source = group.SourceDenyCache
	out.RetryAfter = max(0, out.RetryAfter-elapsed)
	out.ResetAfter = max(0, out.ResetAfter-elapsed)
	return true
}

// put notes the takes that the store refused.
func (d *denyCache) put(takes []group.Op, out []group.Answer, now time.Time) {
	for i := range takes {
		t, o := &takes[i], &out[i]
		if o.Allowed || o.Never || o.RetryAfter <= 0 || !cacheable(t) {
			continue
		}
		shard, slot, sum := d.slot(t.Rule, t.Key)
		shard.mu.Lock()
		*slot = cachedDenial{sum, t.Params, t.By, t.Request.Cost, now, now.Add(min(o.RetryAfter, denyCacheTTL)), *o}
		shard.mu.Unlock()
	}
}

// invalidateRule forgets that keys of a rule were refused.
func (d *denyCache) invalidateRule(r *group.Rule) {
	for i := range d.shards {
		shard := &d.shards[i]
		shard.mu.Lock()
		for j := range shard.slots {
			if slot := &shard.slots[j]; slot.rule != nil && slot.rule.ID == r.ID {
				*slot = cachedDenial{}
			}
		}
		shard.mu.Unlock()
	}
}

// invalidate forgets that a key was refused.
func (d *denyCache) invalidate(r *group.Rule, key string) {
	shard, slot, sum := d.slot(r.ID, key)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if slot.hash == sum {
		*slot = cachedDenial{}
	}
}
