package remote

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
	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
)

// unreported is what this process admitted by itself while the store could not answer, and the store does not know of. It is
// charged there before the first call about the key that the store answers again, or soon if there is no such call; if it
// were not, what was left when the store went away could be had once more from each process.
type unreported struct {
	keys    atomic.Int64 // of which something is not reported
	bytes   atomic.Int64 // of the takes that are kept of them
	reports atomic.Int64 // how often something was reported
	runs    atomic.Bool  // it will be reported for keys that no call asks about
	once    sync.Once
	seed    maphash.Seed
	shards  []unreportedShard
}

type unreportedShard struct {
	mu    sync.Mutex // guards byKey
	byKey map[uint64]unreportedKey
}

type unreportedKey struct {
	amount   int64
	inFlight int64         // besides it: what is on its way to the store
	ended    chan struct{} // is closed when that has ended
	until    time.Time     // nothing of it counts any more
	op       *group.Op     // for a report without a call about the key; nil: there was no room for it
}

// size is how much memory the key's op needs.
func (k *unreportedKey) size() int64 {
	if k.op == nil {
		return 0
	}
	return opSize(k.op)
}

func opSize(t *group.Op) int64 { return int64(unsafe.Sizeof(*t)) + int64(len(t.Key)+len(t.HashTag)) }

const (
	unreportedShards   = 64
	maxUnreportedKeys  = 1 << 18  // what was admitted of more keys is forgotten
	maxUnreportedBytes = 64 << 20 // of their ops; of more keys it is reported with the next call about them
	reportedAtOnce     = 64       // keys, in one call
	reportMin          = 100 * time.Millisecond
	reportMax          = time.Second
)

func (u *unreported) shard(t *group.Op) (*unreportedShard, uint64) {
	u.once.Do(func() {
		u.seed = maphash.MakeSeed()
		u.shards = make([]unreportedShard, unreportedShards)
	})
	var h maphash.Hash
	h.SetSeed(u.seed)
	maphash.WriteComparable(&h, t.Rule)
	h.WriteString(t.Key)
	sum := h.Sum64()
	return &u.shards[sum%unreportedShards], sum
}

// add notes that so much more was admitted of the take's key, which counts for so long.
func (u *unreported) add(t *group.Op, amount int64, until time.Time) {
	if amount <= 0 {
		return
	}
	shard, name := u.shard(t)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if shard.byKey == nil {
		shard.byKey = make(map[uint64]unreportedKey)
	}
	now := time.Now()
	was, known := shard.byKey[name]
	if !known && len(shard.byKey) >= maxUnreportedKeys/unreportedShards && u.tidyLocked(shard, now) == 0 {
		bounds.Unreported.Reached()
		return
	}
	if !known {
		u.keys.Add(1)
	} else if was.until.Before(now) {
		was.amount = 0
	}
	switch size := opSize(t); {
	case was.op != nil:
		was.op.By, was.op.Params = t.By, t.Params // which may have changed
	case u.bytes.Add(size) > maxUnreportedBytes:
		u.bytes.Add(-size)
		bounds.Unreported.Reached()
	default: // the caller's buffers end with the call
		op := t.By.Op(t.Params, strings.Clone(t.Key), strings.Clone(t.HashTag), 0)
		was.op = &op
	}
	if until.Before(was.until) {
		until = was.until
	}
	was.amount, was.until = was.amount+amount, until
	shard.byKey[name] = was
}

// lower notes that so much less was, because a take cost less than its estimate.
func (u *unreported) lower(t *group.Op, amount int64) {
	if u.keys.Load() == 0 {
		return
	}
	shard, name := u.shard(t)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	k, known := shard.byKey[name]
	if !known {
		return
	}
	if k.amount = max(0, k.amount-amount); k.amount == 0 && k.inFlight == 0 {
		u.forgetLocked(shard, name)
		return
	}
	shard.byKey[name] = k
}

func (u *unreported) forgetLocked(shard *unreportedShard, name uint64) {
	k := shard.byKey[name]
	u.bytes.Add(-k.size())
	u.keys.Add(-1)
	delete(shard.byKey, name)
}

// tidyLocked forgets what does not count any more, and tells how much that was.
func (u *unreported) tidyLocked(shard *unreportedShard, now time.Time) (n int) {
	for name, k := range shard.byKey {
		if k.until.Before(now) && k.inFlight == 0 {
			u.forgetLocked(shard, name)
			n++
		}
	}
	return n
}

// ops forgets what does not count any more of a part of the keys, and lists takes of the others, as far as they are kept.
func (u *unreported) ops(part int, now time.Time) (takes []group.Op) {
	shard := &u.shards[part]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	u.tidyLocked(shard, now)
	for _, k := range shard.byKey {
		if k.op != nil {
			takes = append(takes, *k.op)
		}
	}
	return takes
}

// claim has the caller report what was admitted of the take's key, and tell when that is done. While another reports it,
// there is nothing to claim, and ended is closed when that has ended.
func (u *unreported) claim(t *group.Op, now time.Time) (amount int64, ended <-chan struct{}) {
	shard, name := u.shard(t)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	k := shard.byKey[name]
	switch {
	case k.inFlight > 0:
		return 0, k.ended
	case k.amount == 0:
		return 0, nil
	case k.until.Before(now):
		u.forgetLocked(shard, name)
		return 0, nil
	}
	shard.byKey[name] = unreportedKey{inFlight: k.amount, ended: make(chan struct{}), until: k.until, op: k.op}
	return k.amount, nil
}

// finishReport ends a report, of which a part is still to be reported.
func (u *unreported) finishReport(t *group.Op, still int64) {
	shard, name := u.shard(t)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	k := shard.byKey[name] // which stays while it is reported
	close(k.ended)
	k.amount, k.inFlight, k.ended = k.amount+still, 0, nil
	if shard.byKey[name] = k; k.amount == 0 {
		u.forgetLocked(shard, name)
	}
}

// pending is what was admitted of the take's key and the store may not know of, reports on their way included.
func (u *unreported) pending(t *group.Op, now time.Time) int64 {
	if u.keys.Load() == 0 {
		return 0
	}
	shard, name := u.shard(t)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	k := shard.byKey[name]
	if k.until.Before(now) {
		return 0
	}
	return k.amount + k.inFlight
}

// reportUsage charges the store what was admitted of the takes' keys without it, or waits until another caller has. It takes no more than there is: what
// was admitted beyond the limit while processes did not know of each other is not charged to later requests. So no other call may
// come before it: a call that did would be admitted what this process has admitted already.
func (en *Engine) reportUsage(ctx context.Context, takes []group.Op) error {
	for en.unreported.keys.Load() > 0 {
		ended, err := en.reportOwn(ctx, takes)
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

// reportOwn reports what no other caller is reporting. If one is, ended is closed when that has ended.
func (en *Engine) reportOwn(ctx context.Context, takes []group.Op) (ended <-chan struct{}, err error) {
	now := time.Now()
	var charges []group.Op
	for i := range takes {
		t := &takes[i]
		if t.By.OnFailure != group.FailLocal || t.Request.Cost == 0 {
			continue
		}
		amount, other := en.unreported.claim(t, now)
		if other != nil {
			ended = other
		}
		if amount == 0 {
			continue
		}
		// What has worn off here has worn off there. What this process thinks spent is its part of what the store knows,
		// and what it admitted since; so charging the lesser of that and of what it admitted is never too little.
		amount = min(amount, en.spentLocally(t, now))
		if amount <= 0 {
			en.unreported.finishReport(t, 0)
			continue
		}
		charge := t.By.Op(t.Params, t.Key, t.HashTag, amount)
		charge.Request.Min, charge.Request.Charge, charge.Shadow = 1, false, true // it denies nobody anything
		charges = append(charges, charge)
	}
	if len(charges) == 0 {
		return ended, nil
	}
	err = en.Store.Apply(ctx, charges, make([]group.Answer, len(charges)))
	for i := range charges {
		still := int64(0)
		if err != nil { // it may have been charged; if so, twice
			still = charges[i].Request.Cost
		}
		en.unreported.finishReport(&charges[i], still)
	}
	if err == nil {
		en.unreported.reports.Add(1)
	}
	return ended, err
}

// reportLater has it reported soon also if no call asks about the keys.
func (en *Engine) reportLater() {
	if en.unreported.runs.CompareAndSwap(false, true) {
		en.reportAfter(reportMin)
	}
}

// reportAfter reports after so long, and again until nothing is left.
func (en *Engine) reportAfter(wait time.Duration) {
	en.work.after(wait, func() { // unless the engine is closed, which reports too
		if en.reportAll(context.Background()) {
			en.reportAfter(min(2*wait, reportMax))
			return
		}
		en.unreported.runs.Store(false)
		if en.unreported.bytes.Load() > 0 { // since
			en.reportLater()
		}
	})
}

// reportAll reports once what is unreported, and tells whether something is left. It makes one call at a time, so that a server that
// has just come back is not asked about all keys at once. Of a server that does not answer one call is enough.
func (en *Engine) reportAll(ctx context.Context) (left bool) {
	if en.unreported.keys.Load() == 0 {
		return false
	}
	away := make(map[int]bool)
	for part := range unreportedShards {
		of := make(map[int][]group.Op) // by server
		for _, t := range en.unreported.ops(part, time.Now()) {
			t.Request.Cost = 1 // else it would be a peek, which reports nothing
			server := en.Store.Shard(&t)
			of[server] = append(of[server], t)
		}
		for server, takes := range of {
			for some := range slices.Chunk(takes, reportedAtOnce) {
				if away[server] = away[server] || !en.reportFor(ctx, some); away[server] {
					left = true
					break
				}
			}
		}
	}
	return left
}

// reportFor reports for keys of one server, unless that is given a rest, and tells whether it did.
func (en *Engine) reportFor(ctx context.Context, takes []group.Op) bool {
	now := time.Now()
	if !en.work.closed.Load() && !en.shardAvailable(ctx, &takes[0], now) {
		return false
	}
	within, done := en.within(ctx, now)
	defer done()
	_, err := en.reportOwn(within, takes) // what another caller reports is reported, or found again
	return err == nil
}

// spentLocally is what of this process' part of the limit is spent.
func (en *Engine) spentLocally(t *group.Op, now time.Time) int64 {
	p := en.shareOf(t.Params)
	local := en.fallback.open()
	a := local.Take(local.Hash(t.Rule, t.Key), p, now.UnixMicro(), step.Request{
		Dry: true, Known: t.By.Known(&local.Rules).With(p),
	})
	return p.Limit() - a.Remaining
}
