package sluice

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluiceproject/sluice/internal/remote"
)

// Reservation is a take whose true cost is not yet known: the tokens of a language model's answer, the rows of a
// query, a login that may turn out right. An owner who dies leaves it charged; it wears off like any other take. It is for
// one goroutine at a time. A nil or zero Reservation holds nothing: there is nothing to settle, and Retry returns an error.
type Reservation struct {
	Decision // the most restrictive, of the estimates; if it is not allowed, there is nothing to settle

	limiter    *Limiter
	takes      []Take     // of the estimates
	decisions  []Decision // decisions[i] is of takes[i]
	permit     *Permit
	settlement *remote.Settlement // nil: not settled yet
}

// Reserve spends an estimate on the key. Settle says later what it really cost. Of each [Concurrency] limit it holds one
// permit, whatever the estimate, as [Limiter.ReserveTakes] does.
func (l *Limiter) Reserve(ctx context.Context, key string, estimate int64) (*Reservation, error) {
	if estimate <= 0 {
		return nil, fmt.Errorf("%w: estimate %d: reserve at least 1", ErrInvalid, estimate)
	}
	if err := l.validateRules("ReserveTakes"); err != nil {
		return nil, err
	}
	r := &Reservation{limiter: l, takes: l.Takes(ctx, make([]Take, 0, len(l.rules)), key, estimate)}
	for i := range r.takes {
		if t := &r.takes[i]; t.EffectiveLimit().Algorithm == Concurrency {
			t.Cost = 1
		} else {
			t.Settles = true
		}
	}
	if err := r.decide(ctx, l.Decide); err != nil {
		return nil, err
	}
	return r, nil
}

// ReserveTakes reserves takes, of which each has a cost, all or nothing. It also holds permits of [Concurrency] limits: they
// are renewed until the reservation is settled or cancelled, or its [Reservation.Permit] is released. The takes and their
// keys are copied. Set Settles of those that are to be settled at another cost.
func (l *Limiter) ReserveTakes(ctx context.Context, takes []Take) (*Reservation, error) {
	if err := l.validate(); err != nil {
		return nil, err
	}
	r := &Reservation{limiter: l, takes: slices.Clone(takes)}
	for i := range r.takes {
		t := &r.takes[i]
		if t.Cost <= 0 {
			return nil, fmt.Errorf("%w: take %d: cost %d: reserve at least 1", ErrInvalid, i, t.Cost)
		}
		t.Key, t.HashTag = strings.Clone(t.Key), strings.Clone(t.HashTag)
	}
	if len(takes) == 0 {
		return nil, fmt.Errorf("%w: there are no takes to reserve", ErrInvalid)
	}
	if err := r.decide(ctx, l.Decide); err != nil {
		return nil, err
	}
	return r, nil
}

// decide has the limiter decide the takes, and holds what they are granted of what is in flight.
func (r *Reservation) decide(ctx context.Context, decide func(context.Context, []Take, []Decision) (bool, error)) error {
	if r.decisions == nil {
		r.decisions = make([]Decision, len(r.takes))
	}
	allowed, err := decide(ctx, r.takes, r.decisions)
	if err != nil {
		return err
	}
	r.Decision = r.decisions[MostRestrictive(r.decisions)]
	if r.permit = r.limiter.holdPermits(r.takes, r.decisions); !allowed {
		r.permit.Release(ctx)
		r.permit = nil
	}
	return nil
}

var errNoReservation = fmt.Errorf("%w: no limiter made this reservation: use Reserve or ReserveTakes", ErrInvalid)

// Retry decides again if the reservation was denied; the decisions then are those of now. [Events] are told of them only if
// they allow it, so that a caller that tries several times is counted as denied once.
func (r *Reservation) Retry(ctx context.Context) error {
	switch {
	case r == nil || r.limiter == nil:
		return errNoReservation
	case r.Allowed:
		return nil
	}
	if err := r.decide(ctx, r.limiter.decideQuiet); err != nil {
		return err
	}
	if r.Allowed && r.limiter.opts.events.ofDecisions() {
		r.limiter.reportDecisions(ctx, r.takes, r.decisions)
	}
	return nil
}

// Decisions are what was decided about each take, in their order. They must not be changed.
func (r *Reservation) Decisions() []Decision {
	if r == nil {
		return nil
	}
	return r.decisions
}

// Permit is what the reservation holds of [Concurrency] limits, nil if it holds nothing. To release it leaves the rest
// charged.
func (r *Reservation) Permit() *Permit {
	if r == nil {
		return nil
	}
	return r.permit
}

// Settle replaces the estimate by what it really cost, and releases permits. What was not needed is given back, as far as it
// has not worn off, to a bucket for up to two hours; what was needed beyond it is charged, and may go into debt. Settling
// twice does nothing.
//
// While a [RemoteStore] is unavailable Settle returns an error that wraps [ErrUnavailable], and the settlement is kept, with
// up to 10,000 others, and sent when the store is available. After an error Settle may be called again, which is needed
// only if there was no room to keep it: it is settled once.
func (r *Reservation) Settle(ctx context.Context, actual int64) error {
	if actual < 0 {
		return fmt.Errorf("%w: settle at %d: a cost cannot be negative", ErrInvalid, actual)
	}
	if r == nil || !r.Allowed {
		return nil
	}
	if err := r.begin(func(int) int64 { return actual }); err != nil {
		return err
	}
	if err := r.settlement.SetActual(actual); err != nil {
		return err
	}
	return r.send(ctx)
}

// SettleEach is Settle with a cost for each of the takes, in their order.
func (r *Reservation) SettleEach(ctx context.Context, actual []int64) error {
	if r == nil {
		r = &Reservation{}
	}
	if len(actual) != len(r.takes) {
		return fmt.Errorf("%w: settle %d costs of %d takes", ErrInvalid, len(actual), len(r.takes))
	}
	for _, n := range actual {
		if n < 0 {
			return fmt.Errorf("%w: settle at %d: a cost cannot be negative", ErrInvalid, n)
		}
	}
	if !r.Allowed {
		return nil
	}
	if err := r.begin(func(i int) int64 { return actual[i] }); err != nil {
		return err
	}
	return r.send(ctx)
}

// begin makes the settlement, unless it is made.
func (r *Reservation) begin(actual func(i int) int64) error {
	if r.limiter == nil {
		return errNoReservation
	}
	if r.settlement != nil {
		return nil
	}
	settles := make([]Take, 0, len(r.takes))
	for i := range r.takes {
		if r.takes[i].EffectiveLimit().Algorithm == Concurrency { // the permit's
			continue
		}
		if t, ok := r.takes[i].Settlement(&r.decisions[i], actual(i)); ok {
			settles = append(settles, t)
		}
	}
	ops, err := settlementOps(settles)
	if err != nil {
		return err
	}
	r.settlement = r.limiter.engine.NewSettlement(ops, time.Now().Add(maxSettleMemory))
	return nil
}

// send settles, and releases what is held.
func (r *Reservation) send(ctx context.Context) error {
	r.permit.Release(ctx)
	_, err := r.limiter.engine.Settle(ctx, r.settlement)
	return err
}

// Cancel gives the reservation back: nothing was spent after all.
func (r *Reservation) Cancel(ctx context.Context) error { return r.Settle(ctx, 0) }

// Escalation is how long a key is blocked each time that it has to be: blocks that grow with each repetition.
type Escalation struct {
	Blocks      []time.Duration // of the first time, the second and so on; the last repeats
	ForgetAfter time.Duration   // since the first time, after which the next is the first again
}

// Escalate blocks the key for the next of the blocks and returns how long that is. The times are counted in the limiter's
// store, so that all instances that share it count together.
func (l *Limiter) Escalate(ctx context.Context, key string, e Escalation) (time.Duration, error) {
	if err := l.validateRules("BlockBuckets"); err != nil {
		return 0, err
	}
	switch {
	case len(e.Blocks) == 0:
		return 0, fmt.Errorf("%w: Escalation.Blocks is empty: write how long the first block lasts, the second and so on", ErrInvalid)
	case e.ForgetAfter <= 0:
		return 0, fmt.Errorf("%w: Escalation.ForgetAfter is %v: write after how long the next block is the first again", ErrInvalid, e.ForgetAfter)
	}
	offences, err := NewRule(Rule{
		Name: l.rules[0].Name + "/offences",
		Limit: Limit{
			Count: int64(len(e.Blocks)), Window: e.ForgetAfter, Algorithm: FixedWindow, Align: AlignFirstRequest,
		},
	})
	if err != nil {
		return 0, fmt.Errorf("%w: Escalation: %w", ErrInvalid, err)
	}
	takes, out := []Take{{Rule: offences, Key: key, Cost: 1}}, make([]Decision, 1)
	if err := l.applyWithin(ctx, takes, out); err != nil {
		return 0, err
	}
	step := len(e.Blocks) - 1
	if out[0].Allowed {
		step -= int(out[0].Remaining)
	}
	blocked := l.blockWithin(ctx, l.requestTimeout(), e.Blocks[step], l.buckets(ctx, key))
	return e.Blocks[step], blocked
}

// requestTimeout bounds what a request waits for the store.
func (l *Limiter) requestTimeout() time.Duration {
	if !l.engine.IsRemote() {
		return 0
	}
	return l.engine.Timeout
}

// applyWithin applies takes for which no fail mode could answer, within the timeout.
func (l *Limiter) applyWithin(ctx context.Context, takes []Take, out []Decision) error {
	ops, answers, err := new(decideBuffers).inIntegers(takes)
	if err == nil {
		err = l.engine.ApplyOrFail(ctx, ops, answers)
	}
	if err == nil {
		inWords(answers, out)
	}
	return err
}
