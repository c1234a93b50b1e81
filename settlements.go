package sluice

import (
	"context"
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluiceproject/sluice/internal/bounds"
)

// settlements are those that the store has not answered. They are sent again until it does: a charge beyond an estimate
// that is lost would be a gift, and a refund that is lost would keep a caller waiting.
//
// A settlement that never reached the store is sent until it expires. One that may have reached it carries an ID and is
// sent for as long as stores remember IDs: after that it could be applied twice.
type settlements struct {
	mu    sync.Mutex // guards the fields below
	kept  []*settlement
	ids   map[string]*settlement // the first of those kept with an id
	n     int                    // of those kept and those just being sent
	bytes int
	runs  bool // the goroutine that sends them
}

// settlement is what one reservation is settled with.
type settlement struct {
	mu       sync.Mutex // guards the fields below; taken before that of settlements
	done     bool       // nothing of it is sent any more
	err      error      // why not, if the store has not answered
	id       string     // of SettleOnce, until the store has said that this is the first; empty: that is not asked
	attempt  uint64     // ID of the take that asks
	remember *Limit     // for how long the store is to remember the id
	takes    []Take     // that the store has not answered; on a Remote store they have IDs
	until    time.Time
	sent     time.Time // when the takes may have reached the store first; zero: never
	told     bool      // a caller of SettleOnce that it is the first
	kept     bool
	name     string // the id, if it is kept
	size     int    // of its texts, if it is kept
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
var errExpired = errors.Join(errors.New("sluice: settle: it has expired"), ErrUnavailable)

// errSettledBefore says that another settlement of the same id was first.
var errSettledBefore = errors.New("sluice: settled before")

// errTooLate is why a settlement is not sent again.
var errTooLate = errors.Join(errors.New("sluice: settle: the store has not answered for too long: the settlement may have arrived and is not sent again"), ErrUnavailable)

// newSettlement returns a settlement that is not sent after until.
func (l *Limiter) newSettlement(takes []Take, until time.Time) *settlement {
	s := &settlement{takes: slices.Clone(takes), until: until}
	if l.guard != nil { // else the store is in this process, and always answers
		s.attempt = rand.Uint64() | 1
		s.identify(s.attempt)
	}
	return s
}

// identify has the takes charged once however often they are sent.
func (s *settlement) identify(id uint64) {
	for i := range s.takes {
		s.takes[i].ID = id
	}
}

// settlementOnce returns a settlement that is applied if it is the first with its id. If one with the id is kept it is that:
// it may have reached the store already, which knows it by its attempt.
func (l *Limiter) settlementOnce(id string, remember time.Duration, takes []Take) *settlement {
	l.settlements.mu.Lock()
	kept := l.settlements.ids[id]
	l.settlements.mu.Unlock()
	if kept != nil {
		return kept
	}
	s := l.newSettlement(takes, time.Now().Add(remember))
	s.id, s.remember = id, settledLimit(remember)
	if l.guard != nil {
		h := fnv.New64a()
		_, _ = h.Write([]byte(id)) // never fails
		s.identify(h.Sum64() | 1)
	}
	return s
}

// settleLocked sends the settlement unless it is done with, and keeps it if the store does not answer.
func (l *Limiter) settleLocked(ctx context.Context, s *settlement) (forgiven int64, err error) {
	if s.done {
		return 0, s.err
	}
	forgiven, err = l.send(ctx, s)
	switch {
	case err == nil, errors.Is(err, errSettledBefore), errors.Is(err, ErrInvalid), errors.Is(err, errTooLate):
		s.done, s.err = true, err
	case l.guard != nil:
		l.keep(s)
	}
	return forgiven, err
}

// send settles what it can, and leaves in the settlement what the store did not answer.
func (l *Limiter) send(ctx context.Context, s *settlement) (forgiven int64, err error) {
	if s.id != "" {
		// Two calls, because not every store changes keys that live apart in one step. If the second fails, what was to be
		// given back may stay charged, but it is never given back twice.
		first := []Take{{Rule: settled, Limit: s.remember, Key: s.id, Cost: 1, ID: s.attempt}}
		var out [1]Decision
		if err := l.applyWithin(ctx, first, out[:]); err != nil {
			return 0, err
		}
		if !out[0].Allowed {
			return 0, errSettledBefore
		}
		s.id = ""
	}
	s.takes = l.settleHere(ctx, s.takes)
	rest := s.takes[:0]
	for i := range s.takes {
		t := s.takes[i]
		var d Decision
		switch {
		case t.Cost == 0 && !t.Settles: // nothing to settle
		case l.leases != nil && l.refundLease(&t):
		case l.views != nil && !l.leases.closed.Load() && l.believeBack(&t, &d):
			forgiven += l.forgive(ctx, &t, &d)
		default:
			rest = append(rest, t)
		}
	}
	if s.takes = rest; len(rest) == 0 {
		return forgiven, nil
	}
	if !s.sent.IsZero() && time.Since(s.sent) > resendTime {
		return forgiven, errTooLate
	}
	out, asked := make([]Decision, len(rest)), time.Now()
	if err := l.applyWithin(ctx, rest, out); err != nil {
		if s.sent.IsZero() && !errors.Is(err, errOpen) {
			s.sent = time.Now()
		}
		return forgiven, err
	}
	for i := range rest {
		forgiven += l.forgive(ctx, &rest[i], &out[i])
		if out[i].Granted < 0 && l.guard != nil {
			l.guard.denials.forget(rest[i].Rule, rest[i].Key)
		}
	}
	if l.guard != nil {
		l.warm(rest, out, asked)
	}
	s.takes = nil
	return forgiven, nil
}

// believeBack settles a take that was decided from the local estimate of its key.
func (l *Limiter) believeBack(t *Take, d *Decision) bool {
	back := *t
	back.ID = 0 // there is no call that could be repeated
	return l.believe(&back, time.Now(), d)
}

// keep keeps a settlement that the store did not answer, if there is room. What it settles in this process is settled now.
func (l *Limiter) keep(s *settlement) {
	if s.kept || l.leases.closed.Load() {
		return
	}
	k := &l.settlements
	k.mu.Lock()
	defer k.mu.Unlock()
	s.size = s.texts()
	switch {
	case k.n >= maxSettlements || k.bytes+s.size > maxSettlementBytes:
		bounds.Settlements.Reached()
		return
	}
	if s.name = strings.Clone(s.id); s.id != "" {
		if k.ids == nil {
			k.ids = make(map[string]*settlement)
		}
		if s.id = s.name; k.ids[s.name] == nil {
			k.ids[s.name] = s
		}
	}
	for i := range s.takes { // the caller's buffers end with the call
		s.takes[i].Key, s.takes[i].Slot = strings.Clone(s.takes[i].Key), strings.Clone(s.takes[i].Slot)
	}
	s.takes = l.settleHere(context.Background(), s.takes)
	s.kept = true
	k.kept, k.n, k.bytes = append(k.kept, s), k.n+1, k.bytes+s.size
	if !k.runs {
		k.runs = l.leases.start(l.resend)
	}
}

// forget notes that a settlement is not kept any more.
func (k *settlements) forget(s *settlement) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ids[s.name] == s {
		delete(k.ids, s.name)
	}
	k.n--
	k.bytes -= s.size
}

// texts is how much memory the settlement's texts take.
func (s *settlement) texts() int {
	n := len(s.id)
	for i := range s.takes {
		n += len(s.takes[i].Key) + len(s.takes[i].Slot)
	}
	return n
}

// resend sends kept settlements until there are none.
func (l *Limiter) resend() {
	for wait := resendMin; ; {
		select {
		case <-time.After(wait):
		case <-l.leases.closing:
			return
		}
		if l.resendAll(context.Background()) {
			wait = min(2*wait, resendMax)
		} else {
			wait = resendMin
		}
		k := &l.settlements
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
func (l *Limiter) resendAll(ctx context.Context) (left bool) {
	k := &l.settlements
	k.mu.Lock()
	due := k.kept
	k.kept = nil
	k.mu.Unlock()
	var still []*settlement
	away := make(map[int]bool)
	for _, s := range due {
		if !l.sendAgain(ctx, s, away) {
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
func (l *Limiter) sendAgain(ctx context.Context, s *settlement, away map[int]bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.done && !time.Now().Before(s.until) {
		s.done, s.err = true, errExpired
	}
	if !s.done && !away[l.serverOf(s)] {
		if _, err := l.settleLocked(ctx, s); err != nil && !s.done {
			away[l.serverOf(s)] = true
		}
	}
	return s.done
}

// serverOf is the server that the settlement is sent to next.
func (l *Limiter) serverOf(s *settlement) int {
	if s.id != "" {
		return l.guard.store.Server(&Take{Rule: settled, Limit: s.remember, Key: s.id})
	}
	if len(s.takes) == 0 {
		return 0
	}
	return l.guard.store.Server(&s.takes[0])
}
