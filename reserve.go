package sluice

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluiceproject/sluice/internal/remote"
)

// Reservation is a charge whose actual cost is known only later: the tokens of a language model's response, the rows of
// a query, a login that may succeed. A reservation that is never settled stays charged and expires like any other take.
// It must not be used concurrently. A nil or zero Reservation has nothing to settle, and its Retry returns an error.
type Reservation struct {
	Decision // the most restrictive decision about the estimates; if it is not allowed, there is nothing to settle

	limiter    *Limiter
	takes      []Take     // with the estimated costs
	decisions  []Decision // decisions[i] is about takes[i]
	permit     *Permit
	settlement *remote.Settlement // nil until the first call of Settle, SettleEach or Cancel
}

// Reserve charges an estimate, of at least 1, to key. [Reservation.Settle] later replaces it with the actual cost.
// Reserve also acquires one permit of each [Concurrency] limit, whatever the estimate, as [Limiter.ReserveTakes] does.
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

// ReserveTakes reserves takes, each with a cost of at least 1, all or nothing. It also acquires permits of
// [Concurrency] limits, which are renewed until the reservation is settled or cancelled, or its [Reservation.Permit] is
// released. The takes and their keys are copied. Set Take.Settles for takes that may be settled at another cost.
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
		return nil, fmt.Errorf("%w: reserve: no takes", ErrInvalid)
	}
	if err := r.decide(ctx, l.Decide); err != nil {
		return nil, err
	}
	return r, nil
}

// decide decides the takes and holds the permits that they are granted.
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

var errNoReservation = fmt.Errorf("%w: reservation was not created by a limiter: use Reserve or ReserveTakes", ErrInvalid)

// Retry decides a denied reservation again and replaces its decisions. [Events] are called only if it is allowed then,
// so that a caller that retries is counted as denied once.
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

// Decisions returns the decision about each take, in the order of the takes. The caller must not change the slice.
func (r *Reservation) Decisions() []Decision {
	if r == nil {
		return nil
	}
	return r.decisions
}

// Permit returns the reservation's permit of [Concurrency] limits, or nil if it has none. Releasing it leaves the other
// takes charged.
func (r *Reservation) Permit() *Permit {
	if r == nil {
		return nil
	}
	return r.permit
}

// Settle replaces the estimate with the actual cost and releases permits. The unused part is refunded as far as it has
// not expired, to a bucket for up to two hours. A higher cost is charged regardless of the limit and may make the
// balance negative. Settling twice does nothing.
//
// While a [RemoteStore] is unavailable, Settle returns an error that wraps [ErrUnavailable]. The settlement stays
// pending, as one of up to 10,000, and is sent when the store is available. After an error Settle may be called again,
// because a reservation is settled at most once. That is necessary only if there were too many pending settlements.
func (r *Reservation) Settle(ctx context.Context, actual int64) error {
	if actual < 0 {
		return fmt.Errorf("%w: settle: actual cost %d is negative: use at least 0", ErrInvalid, actual)
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

// SettleEach is like Settle with an actual cost for each take, in the order of the takes.
func (r *Reservation) SettleEach(ctx context.Context, actual []int64) error {
	if r == nil {
		r = &Reservation{}
	}
	if len(actual) != len(r.takes) {
		return fmt.Errorf("%w: settle: %d actual costs for %d takes: pass one for each", ErrInvalid, len(actual), len(r.takes))
	}
	for _, n := range actual {
		if n < 0 {
			return fmt.Errorf("%w: settle: actual cost %d is negative: use at least 0", ErrInvalid, n)
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

// begin creates the settlement unless it exists.
func (r *Reservation) begin(actual func(i int) int64) error {
	if r.limiter == nil {
		return errNoReservation
	}
	if r.settlement != nil {
		return nil
	}
	settles := make([]Take, 0, len(r.takes))
	for i := range r.takes {
		if r.takes[i].EffectiveLimit().Algorithm == Concurrency { // settled by releasing the permit
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

// send releases the permits and settles.
func (r *Reservation) send(ctx context.Context) error {
	r.permit.Release(ctx)
	_, err := r.limiter.engine.Settle(ctx, r.settlement)
	return err
}

// Cancel settles the reservation at an actual cost of 0.
func (r *Reservation) Cancel(ctx context.Context) error { return r.Settle(ctx, 0) }

// Escalation is a sequence of blocks that grow longer each time a key is blocked.
type Escalation struct {
	Blocks      []time.Duration // durations of the first block, the second and so on; the last repeats
	ForgetAfter time.Duration   // time since the first block after which the sequence starts again
}

// Escalate blocks key for the next duration of the sequence and returns it. The number of blocks is counted in the
// limiter's store, so that all instances sharing the store escalate together.
func (l *Limiter) Escalate(ctx context.Context, key string, e Escalation) (time.Duration, error) {
	if err := l.validateRules("BlockBuckets"); err != nil {
		return 0, err
	}
	switch {
	case len(e.Blocks) == 0:
		return 0, fmt.Errorf("%w: escalate: Blocks is empty: set at least one duration", ErrInvalid)
	case e.ForgetAfter <= 0:
		return 0, fmt.Errorf("%w: escalate: ForgetAfter %v: use a positive duration", ErrInvalid, e.ForgetAfter)
	}
	offences, err := NewRule(Rule{
		Name: l.rules[0].Name + "/offences",
		Limit: Limit{
			Count: int64(len(e.Blocks)), Window: e.ForgetAfter, Algorithm: FixedWindow, Align: AlignFirstRequest,
		},
	})
	if err != nil {
		return 0, fmt.Errorf("%w: escalate: %w", ErrInvalid, err)
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

// requestTimeout returns the maximum time that a request waits for the store; 0 means no timeout.
func (l *Limiter) requestTimeout() time.Duration {
	if !l.engine.IsRemote() {
		return 0
	}
	return l.engine.Timeout
}

// applyWithin applies takes without fail modes, within the store timeout.
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
