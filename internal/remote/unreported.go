package remote

import (
	"context"
	"hash/maphash"
	"math/rand/v2"
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

// unreported tracks, per key, usage admitted during local fallback. It is charged to the store before the first
// successful call for that key, or soon after recovery if there is none. Without it every outage would grant each
// instance the remaining quota again.
type unreported struct {
	keys    atomic.Int64 // number of keys with unreported usage
	bytes   atomic.Int64 // memory of the ops kept for them
	reports atomic.Int64 // number of reports
	runs    atomic.Bool  // background reporting is scheduled
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
	tried    int64         // in addition to amount: usage of a failed report that the store may have charged
	inFlight int64         // in addition to both: usage of a report in progress
	id       uint64        // idempotency ID of the failed report or the report in progress
	first    time.Time     // time of its first attempt
	ended    chan struct{} // closed when the report in progress has ended
	until    time.Time     // time at which all of it has expired
	part     *step.Params  // this instance's share of the limit at the last admission
	whole    bool          // none of it has expired at the store, even if it has locally
	op       *group.Op     // for background reports; nil if there was no memory for it
}

// pending returns all usage that the store may not have.
func (k *unreportedKey) pending() int64 { return k.amount + k.tried + k.inFlight }

// size returns the memory of the key's op.
func (k *unreportedKey) size() int64 {
	if k.op == nil {
		return 0
	}
	return opSize(k.op)
}

func opSize(t *group.Op) int64 { return int64(unsafe.Sizeof(*t)) + int64(len(t.Key)+len(t.HashTag)) }

const (
	unreportedShards   = 64
	maxUnreportedKeys  = 1 << 18  // usage of further keys is dropped
	maxUnreportedBytes = 64 << 20 // of their ops; usage of further keys is reported with the next call for them
	reportedAtOnce     = 64       // keys per call
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

// add adds usage of the take's key that was admitted from this instance's share of the limit and counts until a time.
func (u *unreported) add(t *group.Op, part *step.Params, amount int64, until time.Time) {
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
		was.amount, was.tried = 0, 0
	}
	switch size := opSize(t); {
	case was.op != nil:
		was.op.By, was.op.Params = t.By, t.Params // may have changed
	case u.bytes.Add(size) > maxUnreportedBytes:
		u.bytes.Add(-size)
		bounds.Unreported.Reached()
	default: // cloned, because the caller may reuse its buffers
		op := t.By.Op(t.Params, strings.Clone(t.Key), strings.Clone(t.HashTag), 0)
		was.op = &op
	}
	if until.Before(was.until) {
		until = was.until
	}
	was.amount, was.until, was.part = was.amount+amount, until, part
	shard.byKey[name] = was
}

// lower reduces the usage, because a take cost less than its estimate.
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
	k.amount = max(0, k.amount-amount)
	if shard.byKey[name] = k; k.pending() == 0 {
		u.forgetLocked(shard, name)
	}
}

func (u *unreported) forgetLocked(shard *unreportedShard, name uint64) {
	k := shard.byKey[name]
	u.bytes.Add(-k.size())
	u.keys.Add(-1)
	delete(shard.byKey, name)
}

// tidyLocked deletes expired usage and returns the number of deleted keys.
func (u *unreported) tidyLocked(shard *unreportedShard, now time.Time) (n int) {
	for name, k := range shard.byKey {
		if k.until.Before(now) && k.inFlight == 0 {
			u.forgetLocked(shard, name)
			n++
		}
	}
	return n
}

// ops deletes expired usage of one shard of the keys and returns the ops of the others, as far as they are kept.
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

// usage is unreported usage of a key that a caller has claimed.
type usage struct {
	amount int64
	id     uint64
	part   *step.Params
	whole  bool
}

// claim makes the caller report the usage of the take's key; it must call finishReport. While another caller reports
// it, there is nothing to claim, and ended is closed when that report has ended. A failed report is retried first, and
// alone.
func (u *unreported) claim(t *group.Op, now time.Time) (r usage, ended <-chan struct{}) {
	shard, name := u.shard(t)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	k := shard.byKey[name]
	switch {
	case k.inFlight > 0:
		return usage{}, k.ended
	case k.pending() == 0:
		return usage{}, nil
	case k.until.Before(now):
		u.forgetLocked(shard, name)
		return usage{}, nil
	}
	if k.tried == 0 || now.Sub(k.first) > resendTime { // the store may have deleted the ID
		k.inFlight, k.amount, k.tried = k.amount+k.tried, 0, 0
		k.id, k.first = rand.Uint64()|1, now
	} else {
		k.inFlight, k.tried = k.tried, 0
	}
	k.ended = make(chan struct{})
	shard.byKey[name] = k
	return usage{k.inFlight, k.id, k.part, k.whole}, nil
}

// finishReport ends a report. If it may not have arrived it is retried. If it has arrived, left is the usage still to
// be reported, none of which has expired at the store.
func (u *unreported) finishReport(t *group.Op, arrived bool, left int64) {
	shard, name := u.shard(t)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	k := shard.byKey[name] // exists as long as a report is in progress
	close(k.ended)
	if k.ended = nil; !arrived {
		k.tried = k.inFlight
	} else {
		k.amount, k.whole = k.amount+left, left > 0
	}
	k.inFlight = 0
	if shard.byKey[name] = k; k.pending() == 0 {
		u.forgetLocked(shard, name)
	}
}

// pending returns the usage of the take's key that the store may not have, reports in progress included.
func (u *unreported) pending(t *group.Op, now time.Time) int64 {
	shard, name := u.shard(t)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	k := shard.byKey[name]
	if k.until.Before(now) {
		return 0
	}
	return k.pending()
}

// reportUsage charges the store for unreported usage of the takes' keys, or waits until another caller has. It charges
// at most the remaining quota. The rest is charged as a bucket is refilled. For a window it is dropped, because it
// would only be denied to later requests, for which other instances have no quota either. It must complete before any
// other call for the key, which would be granted the quota that this instance has already admitted.
func (en *Engine) reportUsage(ctx context.Context, takes []group.Op) error {
	for en.unreported.keys.Load() > 0 {
		reported, ended, err := en.reportOwn(ctx, takes)
		switch {
		case err != nil:
			return err
		case reported: // there may be more
		case ended == nil:
			return nil
		default:
			select { // without holding a claim, so that two calls cannot wait for each other
			case <-ended:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

// reportOwn reports usage that no other caller is reporting. If another caller reports some, ended is closed when that
// has ended.
func (en *Engine) reportOwn(ctx context.Context, takes []group.Op) (reported bool, ended <-chan struct{}, err error) {
	now := time.Now()
	var charges []group.Op
	var worn []int64 // expired part of each charge
	for i := range takes {
		t := &takes[i]
		if t.By.OnFailure != group.FailLocal || t.Request.Cost == 0 {
			continue
		}
		r, other := en.unreported.claim(t, now)
		if other != nil {
			ended = other
		}
		if r.amount == 0 {
			continue
		}
		// Usage that has expired locally has expired at the store, too, unless other instances have called it since.
		// The local count is this instance's share of the store's usage, plus the usage it has admitted since.
		amount := r.amount
		if !r.whole {
			amount = min(amount, en.spentLocally(t, r.part, now))
		}
		if amount <= 0 && !refills(t.Params) {
			en.unreported.finishReport(t, true, 0)
			reported = true // there was nothing to report
			continue
		}
		worn = append(worn, r.amount-max(0, amount))
		charge := t.By.Op(t.Params, t.Key, t.HashTag, max(0, amount))       // with 0 it peeks whether the bucket is full
		if charge.Request.Charge, charge.Shadow = false, true; amount > 0 { // denies no other charge
			charge.ID, charge.Request.Min = r.id, 1
		}
		charges = append(charges, charge)
	}
	if len(charges) == 0 {
		return reported, ended, nil
	}
	answers := make([]group.Answer, len(charges))
	err = en.Store.Apply(ctx, charges, answers)
	for i := range charges {
		charge, a := &charges[i], &answers[i]
		left := int64(0)
		if refills(charge.Params) {
			if left = charge.Request.Cost - a.Granted; a.Remaining+a.Granted < charge.Params.Limit() {
				left += worn[i] // the bucket has not been full since, or others have used it
			}
		}
		en.unreported.finishReport(charge, err == nil, left)
		reported = reported || a.Granted == charge.Request.Cost // otherwise no more quota is available now
	}
	if err != nil {
		return false, ended, err
	}
	en.unreported.reports.Add(1)
	return reported, ended, nil
}

// refills reports whether the limit is a bucket that is refilled over time, at the store in full and locally in part.
func refills(p *step.Params) bool { return p.Kind == step.Bucket || p.Kind == step.Interval }

// reportLater schedules background reporting, for keys without further calls.
func (en *Engine) reportLater() {
	if en.unreported.runs.CompareAndSwap(false, true) {
		en.reportAfter(reportMin)
	}
}

// reportAfter reports after wait, and repeatedly until no usage is left.
func (en *Engine) reportAfter(wait time.Duration) {
	en.work.after(wait, func() { // does not run after Close, which reports itself
		if en.reportAll(context.Background()) {
			en.reportAfter(min(2*wait, reportMax))
			return
		}
		en.unreported.runs.Store(false)
		if en.unreported.bytes.Load() > 0 { // added in the meantime
			en.reportLater()
		}
	})
}

// reportAll tries once to report all usage, and reports whether some is left. It makes one call at a time, so that a
// recovered server does not get calls for all keys at once. After the first failed call it skips the shard.
func (en *Engine) reportAll(ctx context.Context) (left bool) {
	if en.unreported.keys.Load() == 0 {
		return false
	}
	away := make(map[int]bool)
	for part := range unreportedShards {
		of := make(map[int][]group.Op) // by shard
		for _, t := range en.unreported.ops(part, time.Now()) {
			t.Request.Cost = 1 // a peek would report nothing
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

// reportFor reports usage for keys of one shard unless its breaker is open, and reports whether it did.
func (en *Engine) reportFor(ctx context.Context, takes []group.Op) bool {
	now := time.Now()
	if !en.work.closed.Load() && !en.shardAvailable(ctx, &takes[0], now) && !en.breakerOf(&takes[0]).ramping() {
		return false
	}
	within, done := en.within(ctx, now)
	defer done()
	for {
		reported, _, err := en.reportOwn(within, takes) // usage that another caller reports is either reported or found again
		if err != nil || !reported {
			return err == nil
		}
	}
}

// spentLocally returns the local usage of a part of the limit.
func (en *Engine) spentLocally(t *group.Op, part *step.Params, now time.Time) int64 {
	local := en.fallback.open()
	a := local.Take(local.Hash(t.Rule, t.Key), part, now.UnixMicro(), step.Request{
		DryRun: true, Known: t.By.Known(&local.Rules).With(part),
	})
	return part.Limit() - a.Remaining
}
