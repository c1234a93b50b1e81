package sluice

import (
	"context"
	"errors"
	"time"
)

// Remote is implemented by stores that ask servers. A [Limiter] gives each of their decisions a time budget, and stops
// asking a server that does not answer; see [WithBudget].
type Remote interface {
	Store
	// Servers is how many servers there are that can fail by themselves.
	Servers() int
	// Server is the number of the one that a take's key lives on.
	Server(t *Take) int
}

// Arrivals is implemented by [Remote] stores that can tell a server that is late from a process that is: one that has not
// written its request yet, or not read the reply.
type Arrivals interface {
	Remote
	// Patience is after how much time at least a server could have left a request of this store unanswered for the
	// budget, from when it was written. It is 0 if one has, and nothing has come of the reply. Meanwhile own tells
	// that no server is waited for, but this process.
	Patience(budget time.Duration) (left time.Duration, own bool)
}

// DefaultBudget is how long a [Remote] store may take for a decision. It is below the 20 ms that Envoy waits.
const DefaultBudget = 10 * time.Millisecond

// WithBudget bounds how long a [Remote] store may take for a decision. When it is spent the rules' fail modes answer.
// The default is [DefaultBudget].
//
// It is the servers' time. With a store that has [Arrivals] a reply counts that has come when its time is up, though
// this process was too busy to read it; and a request that was written late has as much time from then. In all a
// decision takes at most ten times the budget.
//
// A server that fails too often, or is too slow, is not asked for a while: a quarter of a second at first and up to
// one. Meanwhile the fail modes answer at once.
func WithBudget(d time.Duration) Option { return func(l *Limiter) { l.budget = d } }

// guard stands between a limiter and the servers of its store.
type guard struct {
	store    Remote
	budget   time.Duration
	breakers []breaker
	denials  denials
}

func newGuard(store Remote, budget time.Duration) *guard {
	if budget <= 0 {
		budget = DefaultBudget
	}
	g := &guard{store: store, budget: budget, breakers: make([]breaker, max(1, store.Servers()))}
	g.denials.init() // now, and not in the first decision's time
	return g
}

func (g *guard) breakerOf(t *Take) *breaker {
	return &g.breakers[uint(g.store.Server(t))%uint(len(g.breakers))]
}

// guarded decides takes through the guard, for a caller who waits since now.
func (l *Limiter) guarded(ctx context.Context, takes []Take, out []Decision, now time.Time) error {
	g := l.guard
	if g.denials.answer(takes, out, now) {
		return nil
	}
	if len(g.breakers) > 1 && len(takes) > 1 {
		return l.guardedApart(ctx, takes, out, now)
	}
	if len(takes) > 0 && !l.passes(ctx, &takes[0], now) {
		return l.fail(ctx, takes, out, errOpen)
	}
	return l.ask(ctx, takes, out, now)
}

// errOpen is why a server was not asked.
var errOpen = errors.Join(errors.New("sluice: the server is given a rest after failing too often"), ErrUnavailable)

// guardedApart has only those takes degrade whose server is not asked. If one of them is denied, of the others only those
// are asked about that charge refusals.
func (l *Limiter) guardedApart(ctx context.Context, takes []Take, out []Decision, now time.Time) error {
	var rest, degraded part
	for i := range takes {
		if l.passes(ctx, &takes[i], now) {
			rest.add(takes, i)
		} else {
			degraded.add(takes, i)
		}
	}
	if len(degraded.takes) == 0 {
		return l.ask(ctx, takes, out, now)
	}
	degraded.out = make([]Decision, len(degraded.takes))
	if err := l.fail(ctx, degraded.takes, degraded.out, errOpen); err != nil {
		return err
	}
	if degraded.put(out) {
		all := rest
		rest = part{}
		for j, i := range all.at {
			if all.takes[j].Rule.ChargeDenied {
				rest.add(takes, i)
			} else { // not asked: it would not have been charged either
				out[i] = Decision{Allowed: true, Source: SourceCache, Limit: takes[i].Effective().Params().Limit()}
			}
		}
	}
	if len(rest.takes) == 0 {
		return nil
	}
	rest.out = make([]Decision, len(rest.takes))
	err := l.ask(ctx, rest.takes, rest.out, now)
	rest.put(out)
	return err
}

// part is some takes of a call.
type part struct {
	takes []Take
	at    []int // where in the call they stand
	out   []Decision
}

func (p *part) add(takes []Take, i int) { p.takes, p.at = append(p.takes, takes[i]), append(p.at, i) }

// put puts the part's decisions where they belong, and tells whether one of them denies the call.
func (p *part) put(out []Decision) (denied bool) {
	for j, i := range p.at {
		out[i] = p.out[j]
		denied = denied || !out[i].Allowed && !p.takes[j].Rule.Shadow && p.takes[j].Cost != 0
	}
	return denied
}

// passes tells whether the take's server may be asked. If it is time to probe it, that is done beside the caller.
func (l *Limiter) passes(ctx context.Context, t *Take, now time.Time) bool {
	b := l.guard.breakerOf(t)
	ok, probe := b.pass(now)
	if probe {
		go l.probe(context.WithoutCancel(ctx), b, Take{Rule: t.Rule, Limit: t.Limit, Key: t.Key, Slot: t.Slot})
	}
	return ok
}

// probe asks a server what remains of a key, which changes nothing. It ends within the budget.
func (l *Limiter) probe(ctx context.Context, b *breaker, peek Take) {
	within, done := l.guard.within(ctx, time.Now())
	defer done()
	peek.Key = probeKey // the caller's may be gone by now
	err := l.guard.store.Apply(within, []Take{peek}, make([]Decision, 1))
	if b.probed(time.Now(), err == nil) && l.events.ServerBack != nil {
		l.events.ServerBack(ctx, l.guard.store.Server(&peek))
	}
}

// probeKey is peeked at by probes. No edge makes such a key.
const probeKey = "\x00sluice probe"

// ask makes a call and has the fail modes answer if it failed.
func (l *Limiter) ask(ctx context.Context, takes []Take, out []Decision, began time.Time) error {
	paid, err := l.call(ctx, takes, out, began)
	if err != nil {
		return l.fail(ctx, takes, out, err)
	}
	l.guard.denials.remember(takes, out, time.Now())
	if paid == l.debts.paid.Load() { // else this may be from before the payment: who paid knows better
		l.warm(takes, out, began)
	}
	if len(takes) == 1 && l.admittedHere(&takes[0], &out[0]) {
		l.failTakes(takes, out)
	}
	return nil
}

// admittedHere reports whether the store has granted, to a call that was on its way, what this process had admitted by
// itself meanwhile. The grant then pays for that.
func (l *Limiter) admittedHere(t *Take, d *Decision) bool {
	if d.Granted <= 0 || t.Rule.OnFailure != FailLocal || t.At != 0 || d.Remaining >= l.debts.outstanding(t, time.Now()) {
		return false
	}
	l.debts.lower(t, d.Granted)
	return true
}

// call makes a call within the budget, which runs since began, and notes how it went. It tells how many payments there
// had been when it was made.
func (l *Limiter) call(ctx context.Context, takes []Take, out []Decision, began time.Time) (paid int64, err error) {
	g := l.guard
	within, done := g.within(ctx, began)
	err = l.pay(within, takes)
	paid = l.debts.paid.Load()
	if err == nil {
		err = g.store.Apply(within, takes, out)
	}
	own := done()
	now := time.Now()
	if errors.Is(err, ErrInvalid) || ctx.Err() != nil && err != nil {
		return paid, err // a mistake or a caller who left: neither is the server's fault
	}
	slow := now.Sub(began) >= g.budget && !own
	var seen *breaker
	for i := range takes {
		if b := g.breakerOf(&takes[i]); b != seen {
			seen = b
			if b.done(now, err != nil, slow) && l.events.ServerAway != nil {
				l.events.ServerAway(ctx, g.store.Server(&takes[i]), err)
			}
		}
	}
	return paid, err
}
