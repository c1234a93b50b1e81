package remote

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
)

// settlements are the pending settlements, to which the store has not replied. They are retried until it does: a lost
// charge beyond an estimate would not be counted, and a lost refund would delay a caller.
//
// A settlement that never reached the store is retried until it expires. One that may have reached it carries an ID and
// is retried for as long as stores keep IDs, because after that it could be applied twice.
type settlements struct {
	mu    sync.Mutex // guards the fields below
	kept  []*Settlement
	ids   map[string]*Settlement // the first pending one with an ID
	n     int                    // number of settlements that are pending or being sent
	bytes int
	runs  bool // the goroutine that retries them is running
}

// Settlement is the settlement of one reservation.
type Settlement struct {
	mu    sync.Mutex // guards the fields below
	done  bool       // no longer sent
	err   error      // the reason, if the store has not replied
	once  *group.Op  // take of the ID, which the store allows once; nil once it has, or without an ID
	ops   []group.Op // not yet applied by the store; with IDs on a remote store
	until time.Time
	sent  time.Time // time at which the ops may first have reached the store; zero if never
	told  bool      // SettleOnce has returned that it is the first
	kept  bool
	name  string // the ID, if it is pending
	size  int    // size of its strings, if it is pending
}

const (
	maxSettlements     = 10_000
	maxSettlementBytes = 16 << 20 // of keys of pending settlements
	// resendTime is how long a settlement that may have reached the store is retried. It is shorter than the minute for
	// which the store keeps its ID.
	resendTime = 50 * time.Second
	resendMin  = 100 * time.Millisecond
	resendMax  = time.Second
)

// errExpired is the error of a pending settlement that is no longer sent.
var errExpired = fmt.Errorf("%w: settle: reservation expired", group.ErrUnavailable)

// errSettledBefore is the error if another settlement with the same ID was first.
var errSettledBefore = errors.New("sluice: settled before")

// errTooLate is the error of a settlement that is no longer retried.
var errTooLate = fmt.Errorf("%w: settle: no reply within 50 s: the settlement may have been applied and is not sent again", group.ErrUnavailable)

// NewSettlement returns a settlement that is not sent after until.
func (en *Engine) NewSettlement(ops []group.Op, until time.Time) *Settlement {
	s := &Settlement{ops: slices.Clone(ops), until: until}
	if en.IsRemote() { // otherwise the store is in this process, and calls are never lost
		s.identify(rand.Uint64() | 1)
	}
	return s
}

// identify sets the idempotency ID of the ops.
func (s *Settlement) identify(id uint64) {
	for i := range s.ops {
		s.ops[i].ID = id
	}
}

// settlementOnce returns a settlement that is applied if it is the first with its ID, which is once's key. If one with
// the ID is pending it returns that one, because it may already have reached the store, which identifies it by once.ID.
func (en *Engine) settlementOnce(once group.Op, ops []group.Op, until time.Time) *Settlement {
	en.settlements.mu.Lock()
	kept := en.settlements.ids[once.Key]
	en.settlements.mu.Unlock()
	if kept != nil {
		return kept
	}
	s := &Settlement{ops: slices.Clone(ops), until: until, once: &once}
	if en.IsRemote() {
		once.ID = rand.Uint64() | 1
		h := fnv.New64a()
		_, _ = h.Write([]byte(once.Key)) // never fails
		s.identify(h.Sum64() | 1)
	}
	return s
}

// SettleOnce applies ops if no settlement with the same ID was applied, and reports whether it is the first. once is a
// take of the ID, of which the store allows one.
func (en *Engine) SettleOnce(ctx context.Context, once group.Op, ops []group.Op, until time.Time) (settled bool, forgiven int64, err error) {
	s := en.settlementOnce(once, ops, until)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.told {
		return false, 0, nil
	}
	forgiven, err = en.settleLocked(ctx, s)
	s.told = s.once == nil
	switch {
	case errors.Is(err, errSettledBefore):
		return false, 0, nil
	case err != nil && s.kept && s.told: // it is the first, and the rest of it is retried
		return true, forgiven, nil
	case err != nil && s.kept:
		err = fmt.Errorf("%w (the settlement is pending and is sent when the store is available)", err)
	}
	return s.told, forgiven, err
}

// Settle sends a settlement. kept reports whether it is pending, to be retried because the store did not reply.
func (en *Engine) Settle(ctx context.Context, s *Settlement) (kept bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err = en.settleLocked(ctx, s)
	return s.kept, err
}

// SetActual sets the actual cost of the settlement.
func (s *Settlement) SetActual(actual int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.ops {
		if op := &s.ops[i]; op.Charged > 0 && op.Params.Kind != step.Permits {
			op.Request.Cost = actual - op.Charged
		}
		if cost := s.ops[i].Request.Cost; cost > group.MaxCost || cost < -group.MaxCost {
			return fmt.Errorf("%w: cost %d is not between -2^50 and 2^50", group.ErrInvalid, cost)
		}
	}
	return nil
}

// settleLocked sends the settlement unless it is done, and makes it pending if the store does not reply.
func (en *Engine) settleLocked(ctx context.Context, s *Settlement) (forgiven int64, err error) {
	if s.done {
		return 0, s.err
	}
	forgiven, err = en.send(ctx, s)
	switch {
	case err == nil, errors.Is(err, errSettledBefore), errors.Is(err, group.ErrInvalid), errors.Is(err, errTooLate):
		s.done, s.err = true, err
	case en.IsRemote():
		en.keep(s)
	}
	return forgiven, err
}

// send settles as much as possible, and leaves in s.ops the ops without a reply.
func (en *Engine) send(ctx context.Context, s *Settlement) (forgiven int64, err error) {
	if s.once != nil {
		// Two calls, because not every store can change keys on different shards atomically. If the second fails, a
		// refund may be lost, but it is never made twice.
		var out [1]group.Answer
		if err := en.ApplyOrFail(ctx, []group.Op{*s.once}, out[:]); err != nil {
			return 0, err
		}
		if !out[0].Allowed {
			return 0, errSettledBefore
		}
		s.once = nil
	}
	s.ops = en.settleLocally(ctx, s.ops)
	rest := s.ops[:0]
	for i := range s.ops {
		t := s.ops[i]
		var d group.Answer
		switch {
		case t.Request.Cost == 0 && !t.Request.Settles: // nothing to settle
		case en.IsRemote() && en.refundLease(&t):
		case en.IsRemote() && !en.work.closed.Load() && en.settleEstimate(&t, &d):
			forgiven += en.forgive(ctx, &t, &d)
		default:
			rest = append(rest, t)
		}
	}
	if s.ops = rest; len(rest) == 0 {
		return forgiven, nil
	}
	if !s.sent.IsZero() && time.Since(s.sent) > resendTime {
		return forgiven, errTooLate
	}
	out, asked := make([]group.Answer, len(rest)), time.Now()
	if err := en.ApplyOrFail(ctx, rest, out); err != nil {
		if s.sent.IsZero() && !errors.Is(err, errBreakerOpen) {
			s.sent = time.Now()
		}
		return forgiven, err
	}
	for i := range rest {
		forgiven += en.forgive(ctx, &rest[i], &out[i])
		if out[i].Granted < 0 && en.IsRemote() {
			en.denyCache.invalidate(rest[i].By, rest[i].Key)
		}
	}
	if en.IsRemote() {
		en.updateFallback(rest, out, asked)
	}
	s.ops = nil
	return forgiven, nil
}

// settleEstimate settles a take in the local estimate of its key. It reports whether the estimate could be used.
func (en *Engine) settleEstimate(t *group.Op, d *group.Answer) bool {
	back := *t
	back.ID = 0 // a local change is not retried
	return en.decideFromEstimate(&back, time.Now(), d)
}

// keep makes a settlement pending if there is room. Its locally decided takes are settled now.
func (en *Engine) keep(s *Settlement) {
	if s.kept || en.work.closed.Load() {
		return
	}
	k := &en.settlements
	k.mu.Lock()
	defer k.mu.Unlock()
	s.size = s.texts()
	switch {
	case k.n >= maxSettlements || k.bytes+s.size > maxSettlementBytes:
		bounds.Settlements.Reached()
		return
	}
	if s.once != nil {
		s.name = strings.Clone(s.once.Key)
		if k.ids == nil {
			k.ids = make(map[string]*Settlement)
		}
		if s.once.Key = s.name; k.ids[s.name] == nil {
			k.ids[s.name] = s
		}
	}
	for i := range s.ops { // cloned, because the caller may reuse its buffers
		s.ops[i].Key, s.ops[i].HashTag = strings.Clone(s.ops[i].Key), strings.Clone(s.ops[i].HashTag)
	}
	s.ops = en.settleLocally(context.Background(), s.ops)
	s.kept = true
	k.kept, k.n, k.bytes = append(k.kept, s), k.n+1, k.bytes+s.size
	if !k.runs {
		k.runs = en.work.start(en.resend)
	}
}

// forget removes a settlement that is no longer pending.
func (k *settlements) forget(s *Settlement) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ids[s.name] == s {
		delete(k.ids, s.name)
	}
	k.n--
	k.bytes -= s.size
}

// texts returns the memory of the settlement's strings.
func (s *Settlement) texts() int {
	n := 0
	if s.once != nil {
		n = len(s.once.Key)
	}
	for i := range s.ops {
		n += len(s.ops[i].Key) + len(s.ops[i].HashTag)
	}
	return n
}

// resend retries pending settlements until there are none.
func (en *Engine) resend() {
	for wait := resendMin; ; {
		if !en.work.sleep(wait) {
			return
		}
		if en.resendAll(context.Background()) {
			wait = min(2*wait, resendMax)
		} else {
			wait = resendMin
		}
		k := &en.settlements
		k.mu.Lock()
		if len(k.kept) == 0 {
			k.runs = false
			k.mu.Unlock()
			return
		}
		k.mu.Unlock()
	}
}

// resendAll retries the pending settlements once, oldest first, and reports whether some are left. After the first
// failed call it skips the shard.
func (en *Engine) resendAll(ctx context.Context) (left bool) {
	k := &en.settlements
	k.mu.Lock()
	due := k.kept
	k.kept = nil
	k.mu.Unlock()
	var still []*Settlement
	away := make(map[int]bool)
	for _, s := range due {
		if !en.sendAgain(ctx, s, away) {
			still = append(still, s)
			continue
		}
		k.forget(s)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kept = append(still, k.kept...)
	return len(still) > 0
}

// sendAgain retries a pending settlement unless its shard is in away, and reports whether it is done.
func (en *Engine) sendAgain(ctx context.Context, s *Settlement, away map[int]bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.done && !time.Now().Before(s.until) {
		s.done, s.err = true, errExpired
	}
	if !s.done && !away[en.shardOf(s)] {
		if _, err := en.settleLocked(ctx, s); err != nil && !s.done {
			away[en.shardOf(s)] = true
		}
	}
	return s.done
}

// shardOf returns the shard that the settlement is sent to next.
func (en *Engine) shardOf(s *Settlement) int {
	switch {
	case s.once != nil:
		return en.Store.Shard(s.once)
	case len(s.ops) == 0:
		return 0
	}
	return en.Store.Shard(&s.ops[0])
}
