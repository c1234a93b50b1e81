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

// settlements are those that the store has not answered. They are sent again until it does: a charge beyond an estimate
// that is lost would be a gift, and a refund that is lost would keep a caller waiting.
//
// A settlement that never reached the store is sent until it expires. One that may have reached it carries an ID and is
// sent for as long as stores remember IDs: after that it could be applied twice.
type settlements struct {
	mu    sync.Mutex // guards the fields below
	kept  []*Settlement
	ids   map[string]*Settlement // the first of those kept with an id
	n     int                    // of those kept and those just being sent
	bytes int
	runs  bool // the goroutine that sends them
}

// Settlement is what one reservation is settled with.
type Settlement struct {
	mu    sync.Mutex // guards the fields below
	done  bool       // nothing of it is sent any more
	err   error      // why not, if the store has not answered
	once  *group.Op  // asks the store whether this is the first with its id, until that has said so; nil: that is not asked
	ops   []group.Op // that the store has not answered; on a remote store they have IDs
	until time.Time
	sent  time.Time // when the ops may have reached the store first; zero: never
	told  bool      // a caller of SettleOnce that it is the first
	kept  bool
	name  string // the id, if it is kept
	size  int    // of its texts, if it is kept
}

const (
	maxSettlements     = 10_000
	maxSettlementBytes = 16 << 20 // of the keys that are kept
	// resendTime is for how long a settlement is sent again that may have reached the store. It ends before the store
	// forgets its ID, which it remembers for a minute.
	resendTime = 50 * time.Second
	resendMin  = 100 * time.Millisecond
	resendMax  = time.Second
)

// errExpired is why a settlement is not sent that was kept.
var errExpired = fmt.Errorf("%w: settle: the reservation has expired", group.ErrUnavailable)

// errSettledBefore says that another settlement of the same id was first.
var errSettledBefore = errors.New("sluice: settled before")

// errTooLate is why a settlement is not sent again.
var errTooLate = fmt.Errorf("%w: settle: no reply for too long: the settlement may have arrived and is not sent again", group.ErrUnavailable)

// NewSettlement returns a settlement that is not sent after until.
func (en *Engine) NewSettlement(ops []group.Op, until time.Time) *Settlement {
	s := &Settlement{ops: slices.Clone(ops), until: until}
	if en.IsRemote() { // else the store is in this process, and always answers
		s.identify(rand.Uint64() | 1)
	}
	return s
}

// identify has the ops charged once however often they are sent.
func (s *Settlement) identify(id uint64) {
	for i := range s.ops {
		s.ops[i].ID = id
	}
}

// settlementOnce returns a settlement that is applied if it is the first with its id, which is once's key. If one with the
// id is kept it is that: it may have reached the store already, which knows it by its attempt.
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

// SettleOnce applies ops if no settlement was applied with the same id, and reports whether it is the first. Once is a take
// of the id, of which the store allows one.
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
	case err != nil && s.kept && s.told: // it is the first, and the rest of it is sent again
		return true, forgiven, nil
	case err != nil && s.kept:
		err = fmt.Errorf("%w (the settlement is kept and sent when the store is available)", err)
	}
	return s.told, forgiven, err
}

// Settle sends a settlement, and reports whether it is kept to be sent again if the store does not answer.
func (en *Engine) Settle(ctx context.Context, s *Settlement) (kept bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err = en.settleLocked(ctx, s)
	return s.kept, err
}

// SetActual has the settlement replace what was charged by what it really cost.
func (s *Settlement) SetActual(actual int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.ops {
		if op := &s.ops[i]; op.Charged > 0 && op.Params.Kind != step.Permits {
			op.Request.Cost = actual - op.Charged
		}
		if cost := s.ops[i].Request.Cost; cost > group.MaxCost || cost < -group.MaxCost {
			return fmt.Errorf("%w: cost %d is beyond ±2^50", group.ErrInvalid, cost)
		}
	}
	return nil
}

// settleLocked sends the settlement unless it is done with, and keeps it if the store does not answer.
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

// send settles what it can, and leaves in the settlement what the store did not answer.
func (en *Engine) send(ctx context.Context, s *Settlement) (forgiven int64, err error) {
	if s.once != nil {
		// Two calls, because not every store changes keys that live apart in one step. If the second fails, what was to be
		// given back may stay charged, but it is never given back twice.
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

// settleEstimate settles a take that was decided from the local estimate of its key.
func (en *Engine) settleEstimate(t *group.Op, d *group.Answer) bool {
	back := *t
	back.ID = 0 // there is no call that could be repeated
	return en.decideFromEstimate(&back, time.Now(), d)
}

// keep keeps a settlement that the store did not answer, if there is room. What it settles in this process is settled now.
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
	for i := range s.ops { // the caller's buffers end with the call
		s.ops[i].Key, s.ops[i].HashTag = strings.Clone(s.ops[i].Key), strings.Clone(s.ops[i].HashTag)
	}
	s.ops = en.settleLocally(context.Background(), s.ops)
	s.kept = true
	k.kept, k.n, k.bytes = append(k.kept, s), k.n+1, k.bytes+s.size
	if !k.runs {
		k.runs = en.work.start(en.resend)
	}
}

// forget notes that a settlement is not kept any more.
func (k *settlements) forget(s *Settlement) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ids[s.name] == s {
		delete(k.ids, s.name)
	}
	k.n--
	k.bytes -= s.size
}

// texts is how much memory the settlement's texts take.
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

// resend sends kept settlements until there are none.
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

// resendAll sends the kept settlements once, oldest first, and reports whether some are left. Of a server that does not
// answer one settlement is enough.
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

// sendAgain sends a kept settlement, unless its server is among those that did not answer, and reports whether it is done
// with.
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

// shardOf is the server that the settlement is sent to next.
func (en *Engine) shardOf(s *Settlement) int {
	switch {
	case s.once != nil:
		return en.Store.Shard(s.once)
	case len(s.ops) == 0:
		return 0
	}
	return en.Store.Shard(&s.ops[0])
}
