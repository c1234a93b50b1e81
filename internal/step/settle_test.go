package step_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/sluiceproject/sluice/internal/step"
)

// chronicle computes the expected backlog of a bucket from the history: every allowed take is charged its actual cost
// at its time, and the excess above the estimate when it was settled.
//
// Amounts are exact: a unit of cost is Length, and the refill is Count per microsecond.
type chronicle struct {
	p       *step.Params
	charges []*charged
}

type charged struct{ at, amount int64 }

func (h *chronicle) refill(from, to int64) int64 {
	if h.p.Kind == step.Interval {
		return (to/h.p.Length - from/h.p.Length) * h.p.Count * h.p.Length
	}
	return (to - from) * h.p.Count
}

func (h *chronicle) units(n int64) int64 { return n * h.p.Length }

func (h *chronicle) backlog(now int64) int64 {
	var level, at int64
	for _, c := range h.charges {
		if c.at > at {
			level, at = max(0, level-h.refill(at, c.at)), c.at
		}
		level += c.amount
	}
	if now > at {
		level = max(0, level-h.refill(at, now))
	}
	return level
}

func (h *chronicle) charge(now, amount int64) *charged {
	c := &charged{now, amount}
	h.charges = append(h.charges, c)
	return c
}

// backlogOf returns the amount missing from a bucket.
func backlogOf(k *key, now int64) int64 {
	value := int64(k.state.Value)
	if k.p.Wide(k.words) {
		value = int64(k.words[0])
	}
	if k.state.ExpiresAt <= now {
		return 0
	}
	if k.p.Kind == step.Interval {
		refills := (k.state.ExpiresAt - now + k.p.Length - 1) / k.p.Length
		return (refills*k.p.Count - value) * k.p.Length
	}
	return (k.state.ExpiresAt-now)*k.p.Count - value*(k.p.Count/int64(k.p.Drips().Den))
}

// session is a reservation that is not settled.
type session struct {
	at, estimate int64
	entry        *charged
	late         int64 // actual cost above the estimate
	actual       int64
	settles      bool
}

// schedule is a key with reservations, and its expected backlog.
type schedule struct {
	testing.TB
	rnd   *rand.Rand
	k     *key
	h     *chronicle
	marks int // room for this many marks

	now      int64
	out      []*session
	used     []charged // usage, at the times at which the bound counts it
	late     int64     // total actual cost above the estimates of unsettled sessions
	maxLate  int64     // highest late so far
	forgiven int64
	refunds  int64
	folded   bool
}

func (s *schedule) take(r step.Request) step.Answer {
	if r.Settles {
		need := min(2+3*s.marks, s.k.p.Words(s.k.state, s.k.words, s.now, true))
		if need > len(s.k.words) {
			s.k.words = append(s.k.words, make([]uint64, need-len(s.k.words))...)
		}
	}
	next, a := s.k.p.Take(s.k.state, s.k.words, s.now, r)
	s.k.state = next
	return a
}

// reserve charges an estimate.
func (s *schedule) reserve(estimate, actual int64) {
	a := s.take(step.Request{Cost: estimate, Settles: true})
	if !a.Allowed {
		return
	}
	e := &session{at: a.At, estimate: estimate, actual: actual, late: max(0, actual-estimate), entry: s.h.charge(s.now, s.h.units(estimate))}
	s.out = append(s.out, e)
	s.late += e.late
	s.maxLate = max(s.maxLate, s.late)
	s.used = append(s.used, charged{s.now, s.h.units(min(estimate, actual))})
}

// plain takes without a settlement, and may charge a denied take.
func (s *schedule) plain(cost int64, charge bool) {
	before := backlogOf(s.k, s.now)
	a := s.take(step.Request{Cost: cost, Charge: charge})
	if amount := backlogOf(s.k, s.now) - before; a.Allowed || charge {
		s.h.charge(s.now, amount)
		s.used = append(s.used, charged{s.now, amount})
	}
}

func (s *schedule) settle() {
	i := s.rnd.IntN(len(s.out))
	e := s.out[i]
	s.out = append(s.out[:i], s.out[i+1:]...)
	a := s.k.settle(s.now, step.Settlement{
		At: e.at, Delta: e.actual - e.estimate, Charged: e.estimate, Of: s.k.p.Limit(), Settles: true,
	})
	if e.late > 0 {
		s.forgiven += e.late - a.Granted
		s.h.charge(s.now, s.h.units(a.Granted))
		s.used = append(s.used, charged{s.now, s.h.units(e.late)})
	} else {
		e.entry.amount = s.h.units(e.actual)
		s.refunds++
	}
	s.late -= e.late
}

// over returns the maximum excess of usage over burst + refill in any interval.
func (s *schedule) over() int64 {
	var level, at, worst int64
	for _, c := range s.used {
		level, at = max(0, level-s.h.refill(at, c.at))+c.amount, c.at
		worst = max(worst, level-s.h.units(s.k.p.Burst))
	}
	return worst
}

// distinct returns the number of different times of unsettled reservations.
func (s *schedule) distinct() int {
	at := map[int64]bool{}
	for _, e := range s.out {
		at[e.at] = true
	}
	return len(at)
}

// drawSettling draws a limit whose units may or may not be whole microseconds.
func drawSettling(rnd *rand.Rand) step.Params {
	p := step.Params{Kind: step.Bucket, Count: 1, Length: 1 + rnd.Int64N(3)*999_983, Burst: 2 + rnd.Int64N(12)}
	switch rnd.IntN(4) {
	case 0:
		p.Count, p.Length = 1+rnd.Int64N(50), []int64{1000, 7777, 10_000, 1_000_000}[rnd.IntN(4)]
	case 1:
		p.Kind, p.Count, p.Length = step.Interval, 1+rnd.Int64N(5), 10*second
	}
	return p
}

// A bucket never has less backlog than expected, and exactly the expected one if there are as many marks as unsettled
// takes. The usage in any interval is at most the burst, the refill, and the actual cost above the estimates of the
// takes unsettled at one time.
func TestSettlingIsCounterfactual(t *testing.T) {
	first := seed(t)
	exact, folded, above, refunds := 0, 0, 0, int64(0)
	for i := range uint64(soak(3000)) {
		rnd := rand.New(rand.NewPCG(first+i, 0))
		s := &schedule{TB: t, rnd: rnd, k: newKey(drawSettling(rnd)), marks: []int{step.MaxMarks, step.MaxMarks, 1, 2}[rnd.IntN(4)]}
		s.h = &chronicle{p: s.k.p}
		s.now = 1e15 + rnd.Int64N(1e12)
		unit := max(1, s.k.p.Length/s.k.p.Count)
		below := rnd.IntN(2) == 0 // no estimate is too low
		for range 5 + rnd.IntN(60) {
			s.now += []int64{0, 0, 1, unit, rnd.Int64N(2*unit + 1), rnd.Int64N(unit*s.k.p.Burst + 1)}[rnd.IntN(6)]
			switch n := rnd.IntN(10); {
			case n < 4:
				estimate := 1 + rnd.Int64N(s.k.p.Burst)
				if rnd.IntN(2) == 0 {
					estimate = 1
				}
				actual := []int64{0, 0, 1, estimate, rnd.Int64N(estimate + 1)}[rnd.IntN(5)]
				if actual > estimate || !below && rnd.IntN(3) == 0 {
					actual = estimate
					if !below {
						actual += 1 + rnd.Int64N(2*s.k.p.Burst)
					}
				}
				s.reserve(estimate, actual)
			case n < 8 && len(s.out) > 0:
				s.settle()
			case n == 8:
				s.plain(1+rnd.Int64N(s.k.p.Burst), false)
			default:
				s.plain(1+rnd.Int64N(s.k.p.Burst), true)
			}
			s.folded = s.folded || s.distinct() > s.marks
			got, want := backlogOf(s.k, s.now), s.h.backlog(s.now)
			if got < want {
				t.Fatalf("seed %d: %v, %d marks: backlog %d, less than %d", first+i, s.k, s.marks, got, want)
			}
			// Marks are whole microseconds, so each refund may be up to 1 µs too small.
			slack := int64(0)
			if s.k.p.Kind == step.Bucket && s.k.p.Drips().Den > 1 {
				slack = (s.refunds + 1) * s.k.p.Count
			}
			if !s.folded && got > want+slack {
				t.Fatalf("seed %d: %v, %d marks: backlog %d, more than %d", first+i, s.k, s.marks, got, want)
			}
		}
		if over := s.over(); over > s.h.units(s.maxLate+s.forgiven) {
			t.Fatalf("seed %d: %v: used %d above the burst, late at most %d, forgiven %d", first+i, s.k, over, s.h.units(s.maxLate), s.forgiven)
		}
		refunds += s.refunds
		if s.folded {
			folded++
		} else {
			exact++
		}
		if s.maxLate > 0 {
			above++
		}
	}
	t.Logf("%d schedules exact, %d with marks folded, %d with estimates too low; %d refunds", exact, folded, above, refunds)
	if n := soak(3000); exact < n/10 || folded < n/10 || above < n/10 {
		t.Error("too much of one kind to show anything")
	}
}

// Takes that accept a later place: the actual cost of departures never exceeds burst + refill. Takes without marks are
// refunded if all are without marks, and not next to reservations, whose refunds hide how far ahead places are
// promised. Reservations never outnumber marks, because merged marks with places refund one unit too much in one
// of some million schedules.
func TestSettlingKeepsPlaces(t *testing.T) {
	first := seed(t)
	given := 0
	for i := range uint64(soak(5000)) {
		rnd := rand.New(rand.NewPCG(first+i, 1))
		s := &schedule{TB: t, rnd: rnd, marks: step.MaxMarks}
		burst := 2 + rnd.Int64N(7)
		s.k = newKey(step.Params{Kind: step.Bucket, Count: 1, Length: second, Burst: burst})
		if rnd.IntN(3) == 0 {
			s.k = newKey(step.Params{Kind: step.Interval, Count: 1, Length: second, Burst: burst})
		}
		s.h = &chronicle{p: s.k.p}
		s.now = 1e15
		reserving := []int{0, 100, 75}[rnd.IntN(3)] // percentage of takes that reserve
		var departed []*charged
		for range 3 + rnd.IntN(23) {
			s.now += []int64{0, 0, 1, 1, 2, rnd.Int64N(burst + 1)}[rnd.IntN(6)] * second
			if len(s.out) > 0 && rnd.IntN(100) < 45 {
				j := rnd.IntN(len(s.out))
				e := s.out[j]
				s.out = append(s.out[:j], s.out[j+1:]...)
				actual := []int64{0, 0, e.estimate, rnd.Int64N(e.estimate + 1)}[rnd.IntN(4)]
				a := s.k.settle(s.now, step.Settlement{At: e.at, Delta: actual - e.estimate, Charged: e.estimate, Settles: e.settles})
				if a.Granted < 0 {
					given++
				}
				e.entry.amount = s.h.units(actual)
				continue
			}
			cost := 1 + rnd.Int64N(burst)
			settles := rnd.IntN(100) < reserving
			a := s.take(step.Request{Cost: cost, MaxDelay: []int64{0, 0, 3, 10, 20}[rnd.IntN(5)] * second, Settles: settles})
			if !a.Allowed {
				continue
			}
			c := &charged{a.At, s.h.units(cost)}
			at := len(departed)
			for at > 0 && departed[at-1].at > c.at {
				at--
			}
			departed = append(departed[:at], append([]*charged{c}, departed[at:]...)...)
			if settles || reserving == 0 {
				s.out = append(s.out, &session{at: a.At, estimate: cost, entry: c, settles: settles})
			}
		}
		for _, c := range departed {
			s.used = append(s.used, *c)
		}
		if over := s.over(); over > 0 {
			t.Fatalf("seed %d: %v, %d marks: departures %d above the burst", first+i, s.k, s.marks, over)
		}
	}
	if given < soak(5000) {
		t.Errorf("%d refunds are too few to show anything", given)
	}
}

// Three reservations and room for two marks: neighbours share one, and are refunded less than possible.
func TestSettlingSharesMarks(t *testing.T) {
	s := &schedule{TB: t, k: newKey(step.Params{Kind: step.Bucket, Count: 1, Length: second, Burst: 10}), marks: 2}
	s.h = &chronicle{p: s.k.p}
	for i, cost := range []int64{4, 3, 3} {
		s.now = epoch + int64(i)*second
		s.reserve(cost, 0)
	}
	s.now = epoch + 3*second
	var remaining []int64
	for _, e := range s.out {
		a := s.k.settle(s.now, step.Settlement{At: e.at, Delta: -e.estimate, Charged: e.estimate, Settles: true})
		remaining = append(remaining, a.Remaining)
	}
	if got := fmt.Sprint(remaining); got != "[6 6 9]" {
		t.Errorf("remain %s, want [6 6 9]", got)
	}
	if s.k.p.Wide(s.k.words) {
		t.Errorf("all is settled, and there are marks: %v", s.k.words)
	}
}

// Reserving all quota for ten minutes and cancelling all of it frees one burst, not one per reservation.
func TestSettlingSavesNothingUp(t *testing.T) {
	const burst = 60_000
	s := &schedule{TB: t, k: newKey(step.Params{Kind: step.Bucket, Count: 1000, Length: second, Burst: burst}), marks: step.MaxMarks}
	s.h = &chronicle{p: s.k.p}
	for i := range int64(600) {
		s.now = epoch + i*second
		for n := -1; n != len(s.out); {
			n = len(s.out)
			s.reserve(burst/6, 0)
		}
	}
	s.now = epoch + 600*second
	used := int64(0)
	for _, e := range s.out {
		s.k.settle(s.now, step.Settlement{At: e.at, Delta: -e.estimate, Charged: e.estimate, Settles: true})
		for s.k.allow(s.now, burst/6) {
			used += burst / 6
		}
	}
	if used != burst || len(s.out) < 60 {
		t.Errorf("%d were used at once after %d were cancelled, want %d", used, len(s.out), burst)
	}
}

// Each time a clock is behind, a take is charged too early by as much as is refilled in between, and no more than that
// is refunded in addition.
func TestSettlingWithClocksThatStepBack(t *testing.T) {
	first := seed(t)
	stepped := 0
	for i := range uint64(soak(3000)) {
		rnd := rand.New(rand.NewPCG(first+i, 2))
		s := &schedule{TB: t, rnd: rnd, k: newKey(step.Params{Kind: step.Bucket, Count: 1, Length: second, Burst: 2 + rnd.Int64N(9)}), marks: step.MaxMarks}
		s.h = &chronicle{p: s.k.p}
		at, back := int64(1e15), int64(0)
		for range 5 + rnd.IntN(40) {
			at += rnd.Int64N(3) * second
			s.now = at
			if rnd.IntN(6) == 0 {
				s.now -= rnd.Int64N(5) * second
				back += at - s.now
				stepped++
			}
			switch n := rnd.IntN(10); {
			case n < 5:
				estimate := 1 + rnd.Int64N(s.k.p.Burst)
				s.reserve(estimate, rnd.Int64N(estimate+1))
			case n < 9 && len(s.out) > 0:
				s.settle()
			default:
				s.plain(1+rnd.Int64N(s.k.p.Burst), n == 9)
			}
			s.now = at
			got, want := backlogOf(s.k, s.now), s.h.backlog(s.now)
			if got+2*back*s.k.p.Count < want {
				t.Fatalf("seed %d: %v: backlog %d, less than %d by more than clocks were behind, %d s", first+i, s.k, got, want, back/second)
			}
		}
	}
	if stepped < soak(3000) {
		t.Error("too few steps back to show anything")
	}
}
