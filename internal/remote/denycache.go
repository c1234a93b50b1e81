package remote

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
)

// denyCache decides repeated denials without calling the store. An entry lives for min(RetryAfter, 1 s) and applies to
// the same limit and cost: a larger cost has a longer RetryAfter, or exceeds the limit. Entries may be evicted at any
// time; a miss calls the store.
//
// Instances with an entry see a refund or reset at the store up to 1 s late.
type denyCache struct {
	seed   maphash.Seed
	shards []denyCacheShard
}

const (
	denyCacheShards  = 64
	denyCacheEntries = 64 // per shard
	denyCacheTTL     = time.Second
)

type denyCacheShard struct {
	mu    sync.Mutex // guards slots
	slots [denyCacheEntries]cachedDenial
}

type cachedDenial struct {
	hash      uint64
	limit     *step.Params // compared by pointer: a changed limit misses
	rule      *group.Rule
	cost      int64
	at        time.Time // time of the decision
	expiresAt time.Time
	answer    group.Answer
}

func (d *denyCache) init() {
	d.seed = maphash.MakeSeed()
	d.shards = make([]denyCacheShard, denyCacheShards)
}

// cacheable reports whether a denial of the take may be cached: the take has only a cost, and its denials are not
// charged. Rules with eventual accuracy cache usage, never decisions.
func cacheable(t *group.Op) bool {
	return t.By.Accuracy != group.AccuracyEventual && t.Request.Cost > 0 && t.At == 0 && t.ID == 0 && t.Request.Min == 0 && t.Request.MaxDelay == 0 &&
		!t.By.ChargeDenied && !t.By.Shadow && !mayFreeEarly(t.Params)
}

// mayFreeEarly reports whether there may be room before RetryAfter even without a refund: places in a queue have no
// RetryAfter, and permits may be released at any time.
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

// lookup sets out if one of the takes has a cached denial, and reports whether it did. A call with a take whose denials
// are charged is never decided from the cache.
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
		if i != denied { // the store would not have charged it either
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

// put caches the takes that the store denied.
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

// invalidateRule deletes the entries of all keys of a rule.
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

// invalidate deletes the entry of a key.
func (d *denyCache) invalidate(r *group.Rule, key string) {
	shard, slot, sum := d.slot(r.ID, key)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if slot.hash == sum {
		*slot = cachedDenial{}
	}
}
