package sluice

import (
	"context"
	"fmt"
	"time"

	"github.com/sluiceproject/sluice/internal/remote"
)

// Reservation is a take whose true cost is not yet known: the tokens of a language model's answer, the rows of a
// query, a login that may turn out right. An owner who dies leaves it charged; it wears off like any other take.
type Reservation struct {
	Decision // of the estimate; if it is not allowed, there is nothing to settle

	limiter    *Limiter
	takes      []Take             // that settle it
	settlement *remote.Settlement // nil: not settled yet
}

// Reserve spends an estimate on the key. Settle says later what it really cost.
func (l *Limiter) Reserve(ctx context.Context, key string, estimate int64) (*Reservation, error) {
	if estimate <= 0 {
		return nil, fmt.Errorf("%w: estimate %d: reserve at least 1", ErrInvalid, estimate)
	}
	if len(l.Rules()) == 0 {
		return nil, fmt.Errorf("%w: this limiter has no rules: use Decide", ErrInvalid)
	}
	takes, out := make([]Take, len(l.rules)), make([]Decision, len(l.rules))
	for i, rule := range l.rules {
		takes[i] = Take{Rule: rule, Key: key, Cost: estimate, Settles: true}
	}
	if l.opts.limitFor != nil {
		takes[0].Limit = l.opts.limitFor(ctx, key)
	}
	if _, err := l.Decide(ctx, takes, out); err != nil {
		return nil, err
	}
	r := &Reservation{limiter: l, Decision: out[MostRestrictive(out)], takes: takes[:0]}
	for i := range out {
		if t, ok := takes[i].Settlement(&out[i], estimate); ok {
			r.takes = append(r.takes, t)
		}
	}
	return r, nil
}

// Settle replaces the estimate by what it really cost. What was not needed is given back, as far as it has not worn off,
// to a bucket for up to [MaxSettle]; what was needed beyond it is charged, and may go into debt. Settling twice does nothing.
//
// While a [RemoteStore] store is unavailable Settle returns an error that wraps [ErrUnavailable], and the settlement is kept, with
// up to 10,000 others, and sent when the store is available. After an error Settle may be called again, which is needed
// only if there was no room to keep it: it is settled once.
func (r *Reservation) Settle(ctx context.Context, actual int64) error {
	if actual < 0 {
		return fmt.Errorf("%w: settle at %d: a cost cannot be negative", ErrInvalid, actual)
	}
	if !r.Allowed {
		return nil
	}
	if r.settlement == nil {
		ops, err := settlementOps(r.takes)
		if err != nil {
			return err
		}
		r.settlement = r.limiter.engine.NewSettlement(ops, time.Now().Add(MaxSettle))
	}
	if err := r.settlement.SetActual(actual); err != nil {
		return err
	}
	_, err := r.limiter.engine.Settle(ctx, r.settlement)
	return err
}

// Cancel gives the reservation back: nothing was spent after all.
func (r *Reservation) Cancel(ctx context.Context) error { return r.Settle(ctx, 0) }

// Escalation is how long a key is blocked for its first offence, its second and so on; the last step repeats. Offences
// are forgotten when Forget has passed since the first.
type Escalation struct {
	Blocks      []time.Duration
	ForgetAfter time.Duration
}

// Escalate blocks the key for the ladder's next step and tells for how long. Offences are counted in the limiter's
// store, so that all who share it climb one ladder.
func (l *Limiter) Escalate(ctx context.Context, key string, ladder Escalation) (time.Duration, error) {
	if len(ladder.Blocks) == 0 || len(l.Rules()) == 0 {
		return 0, fmt.Errorf("%w: escalate needs a rule and a ladder with at least one step", ErrInvalid)
	}
	offences, err := NewRule(Rule{
		Name: l.rules[0].Name + "/offences",
		Limit: Limit{
			Count: int64(len(ladder.Blocks)), Window: ladder.ForgetAfter, Algorithm: FixedWindow, Align: AlignFirstRequest,
		},
	})
	if err != nil {
		return 0, fmt.Errorf("ladder: %w", err)
	}
	takes, out := []Take{{Rule: offences, Key: key, Cost: 1}}, make([]Decision, 1)
	if err := l.applyWithin(ctx, takes, out); err != nil {
		return 0, err
	}
	step := len(ladder.Blocks) - 1
	if out[0].Allowed {
		step -= int(out[0].Remaining)
	}
	blocked := l.blockWithin(ctx, l.requestBudget(), ladder.Blocks[step], l.buckets(ctx, key))
	return ladder.Blocks[step], blocked
}

// requestBudget bounds what a request waits for the store.
func (l *Limiter) requestBudget() time.Duration {
	if !l.engine.IsRemote() {
		return 0
	}
	return l.engine.Timeout
}

// applyWithin applies takes for which no fail mode could answer, within the budget.
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
