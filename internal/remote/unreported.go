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
	tried    int64         // besides it: what a report was about that the store may have charged
	inFlight int64         // besides both: what is on its way to the store
	id       uint64        // of the report that was tried or is on its way: it is charged once however often it is sent
	first    time.Time     // when that was sent first
	ended    chan struct{} // is closed when what is on its way has ended
	until    time.Time     // nothing of it counts any more
	part     *step.Params  // this process' part of the limit when something was admitted last
	whole    bool          // nothing of it has worn off at the store, whatever has here
	op       *group.Op     // for a report without a call about the key; nil: there was no room for it
}

// pending is all that the store may not know of.
func (k *unreportedKey) pending() int64 { return k.amount + k.tried + k.inFlight }

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

// add notes that so much more was admitted of the take's key by this process' part of the limit, which counts for so long.
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
	was.amount, was.until, was.part = was.amount+amount, until, part
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

// usage is what a caller reports of a key.
type usage struct {
	amount int64
	id     uint64
	part   *step.Params
	whole  bool
}

// claim has the caller report what was admitted of the take's key, and tell when that is done. While another reports it,
// there is nothing to claim, and ended is closed when that has ended. A report that was tried goes first, and by itself.
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
	if k.tried == 0 || now.Sub(k.first) > resendTime { // whose ID the store forgets
		k.inFlight, k.amount, k.tried = k.amount+k.tried, 0, 0
		k.id, k.first = rand.Uint64()|1, now
	} else {
		k.inFlight, k.tried = k.tried, 0
	}
	k.ended = make(chan struct{})
	shard.byKey[name] = k
	return usage{k.inFlight, k.id, k.part, k.whole}, nil
}

// finishReport ends a report, which is sent again if it may not have arrived. If it has, so much is left to be reported of which
// nothing has worn off at the store.
func (u *unreported) finishReport(t *group.Op, arrived bool, left int64) {
	shard, name := u.shard(t)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	k := shard.byKey[name] // which stays while it is reported
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

// pending is what was admitted of the take's key and the store may not know of, reports on their way included.
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

// reportUsage charges the store what was admitted of the takes' keys without it, or waits until another caller has. It takes no
// more than there is. What a bucket does not have is charged as it fills; of a window it is forgotten, because that would only
// be denied to later requests which other processes have nothing left for either. So no other call may come before it: a call that did would be admitted what this process has admitted already.
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
			select { // with nothing claimed, so that two calls cannot wait for each other
			case <-ended:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

// reportOwn reports what no other caller is reporting. If one is, ended is closed when that has ended.
func (en *Engine) reportOwn(ctx context.Context, takes []group.Op) (reported bool, ended <-chan struct{}, err error) {
	now := time.Now()
	var charges []group.Op
	var worn []int64 // of them
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
		// What has worn off here has worn off there, if nobody else asked the store meanwhile. What this process thinks
		// spent is its part of what the store knows, and what it admitted since.
		amount := r.amount
		if !r.whole {
			amount = min(amount, en.spentLocally(t, r.part, now))
		}
		if amount <= 0 && !refills(t.Params) {
			en.unreported.finishReport(t, true, 0)
			reported = true // that there is nothing
			continue
		}
		worn = append(worn, r.amount-max(0, amount))
		charge := t.By.Op(t.Params, t.Key, t.HashTag, max(0, amount))       // with nothing it asks whether the bucket is full
		if charge.Request.Charge, charge.Shadow = false, true; amount > 0 { // it denies nobody anything
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
				left += worn[i] // the bucket has never been full since, or others have used it
			}
		}
		en.unreported.finishReport(charge, err == nil, left)
		reported = reported || a.Granted == charge.Request.Cost // else there is nothing to be had now
	}
	if err != nil {
		return false, ended, err
	}
	en.unreported.reports.Add(1)
	return reported, ended, nil
}

// refills tells that the limit's bucket fills as time goes by, at the store as a whole and here in part.
func refills(p *step.Params) bool { return p.Kind == step.Bucket || p.Kind == step.Interval }

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

// reportAll reports once what is unreported, and reports whether something is left. It makes one call at a time, so that a server that
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

// reportFor reports for keys of one server, unless that is given a rest, and reports whether it did.
func (en *Engine) reportFor(ctx context.Context, takes []group.Op) bool {
	now := time.Now()
	if !en.work.closed.Load() && !en.shardAvailable(ctx, &takes[0], now) && !en.breakerOf(&takes[0]).ramping() {
		return false
	}
	within, done := en.within(ctx, now)
	defer done()
	for {
		reported, _, err := en.reportOwn(within, takes) // what another caller reports is reported, or found again
		if err != nil || !reported {
			return err == nil
		}
	}
}

// spentLocally is what is spent of a part of the limit that this process counted by.
func (en *Engine) spentLocally(t *group.Op, part *step.Params, now time.Time) int64 {
	local := en.fallback.open()
	a := local.Take(local.Hash(t.Rule, t.Key), part, now.UnixMicro(), step.Request{
		DryRun: true, Known: t.By.Known(&local.Rules).With(part),
	})
	return part.Limit() - a.Remaining
}
