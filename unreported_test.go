package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice"
)

// A report of unreported usage is in progress and then fails. The usage stays unreported, and until it is reported no
// call for the key reaches the store, which would admit the same usage once more.
func TestDebtsOutliveAPaymentThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far := newFar()
		rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: "r", Limit: sluice.PerDay(10).WithAlgorithm(sluice.FixedWindow)}))
		l := sluice.Must(sluice.NewWithRules(far, []*sluice.Rule{rule}))
		admitted := 0
		var counting sync.Mutex
		ask := func() sluice.Decision {
			d := sluice.Must(l.Allow(t.Context(), "k"))
			counting.Lock()
			defer counting.Unlock()
			if d.Allowed {
				admitted++
			}
			return d
		}
		far.disturb(refuses)
		for range 6 {
			ask()
		}
		held := make(chan struct{})
		var onItsWay atomic.Bool
		far.disturb(func(_ context.Context, take *sluice.Take) error {
			if take.MinGrant == 0 { // not a report
				return nil
			}
			onItsWay.Store(true)
			<-held
			return errAway
		})
		var payer sync.WaitGroup
		for !onItsWay.Load() {
			pause(time.Second)
			payer.Go(func() { ask() })
			synctest.Wait()
		}
		for range 3 {
			if d := ask(); d.Source == sluice.SourceStore {
				t.Errorf("answered before the payment: %+v", d)
			}
			pause(sluice.DefaultStoreTimeout)
		}
		close(held)
		payer.Wait()
		far.disturb(nil)
		for d := ask(); d.Allowed || d.Source != sluice.SourceStore; d = ask() {
			pause(time.Second)
		}
		if admitted > 10 {
			t.Errorf("%d of 10 were admitted", admitted)
		}
	})
}

// Unreported usage is charged to the store even if the instance gets no more requests for the key: its clients use
// another instance, or it exits.
func TestDebtsArePaidUnasked(t *testing.T) {
	for name, then := range map[string]func(t *testing.T, l *sluice.Limiter){
		"later": func(*testing.T, *sluice.Limiter) { pause(3 * time.Second) },
		"closed": func(t *testing.T, l *sluice.Limiter) {
			if err := l.Close(t.Context()); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const keys, limit = 200, 10
				far := newFar()
				far.servers = 3
				rule := mustRule(t, sluice.Rule{Name: "r", Limit: sluice.PerDay(limit).WithAlgorithm(sluice.FixedWindow)})
				two := sluice.WithInstances(func() int { return 2 })
				first := sluice.Must(sluice.NewWithRules(far, []*sluice.Rule{rule}, two))
				other := sluice.Must(sluice.NewWithRules(far, []*sluice.Rule{rule}, two))
				admitted := make([]int64, keys)
				key := func(i int) string { return fmt.Sprint("key", i) }
				askAll := func(l *sluice.Limiter) {
					for i := range admitted {
						for range limit + 1 {
							admitted[i] += mustAllow(t, l, key(i), 1).Granted
						}
					}
				}
				far.disturb(refuses)
				askAll(first)
				pause(time.Minute)
				far.disturb(nil)
				then(t, first)
				askAll(other)
				for i, n := range admitted {
					if n < limit || n > limit+1 { // limit + n − 1 with n = 2 instances
						t.Errorf("%s: %d admitted of %d", key(i), n, limit)
					}
				}
				if err := errors.Join(first.Close(t.Context()), other.Close(t.Context())); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// An instance with unreported usage calls an unavailable shard at most once per second in addition to its callers'
// calls, and stops when all of the usage has expired.
func TestDebtsThatCannotBePaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far := newFar()
		l := sluice.Must(sluice.New(far, "r", sluice.PerMinute(10).WithAlgorithm(sluice.FixedWindow)))
		far.disturb(refuses)
		for i := range 1000 {
			mustAllow(t, l, fmt.Sprint(i), 1)
		}
		before := far.calls.Load()
		pause(10 * time.Minute)
		if n := far.calls.Load() - before; n < 10 || n > 90 {
			t.Errorf("%d calls to an unavailable server in the minute with unreported usage", n)
		}
		before = far.calls.Load()
		pause(time.Hour)
		if n := far.calls.Load() - before; n != 0 {
			t.Errorf("%d calls after all unreported usage has expired", n)
		}
	})
}

// Unreported usage is charged exactly once, however many replies are late and however the number of instances changes
// until then.
func TestDebtsAreChargedOnce(t *testing.T) {
	for name, nodes := range map[string]func(back bool) int{
		"alone":                 func(bool) int { return 1 },
		"of two":                func(bool) int { return 2 },
		"of two, then unknown":  func(back bool) int { return map[bool]int{false: 2, true: 0}[back] },
		"of two, then of three": func(back bool) int { return map[bool]int{false: 2, true: 3}[back] },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const limit, asked = 100, 15
				for _, algorithm := range []sluice.Algorithm{sluice.FixedWindow, sluice.TokenBucket, sluice.SlidingWindowLog} {
					far := newFar()
					rule := mustRule(t, sluice.Rule{Name: "r", Limit: sluice.PerDay(limit).WithAlgorithm(algorithm)})
					var back atomic.Bool
					l := sluice.Must(sluice.NewWithRules(far, []*sluice.Rule{rule}, sluice.WithInstances(func() int { return nodes(back.Load()) })))
					answersLate := &lateReplies{farStore: far}
					slow := sluice.Must(sluice.NewWithRules(answersLate, []*sluice.Rule{rule}, sluice.WithInstances(func() int { return nodes(back.Load()) })))
					far.disturb(refuses)
					admitted := mustAllow(t, slow, "k", 1).Granted // not yet charged at the store
					far.disturb(nil)
					for range asked {
						admitted += mustAllow(t, slow, "k", 1).Granted
					}
					back.Store(true)
					answersLate.inTime.Store(true)
					pause(5 * time.Second)
					left := sluice.Must(l.Peek(t.Context(), "k")).Remaining
					if admitted != asked+1 || left != limit-admitted {
						t.Errorf("%v: %d admitted, %d of %d left", algorithm, admitted, left, limit)
					}
					if err := errors.Join(l.Close(t.Context()), slow.Close(t.Context())); err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

// lateReplies is a store that applies all takes and whose replies are too late.
type lateReplies struct {
	*farStore
	inTime atomic.Bool
}

func (s *lateReplies) Apply(ctx context.Context, takes []sluice.Take, out []sluice.Decision) error {
	if err := s.farStore.Apply(ctx, takes, out); err != nil || s.inTime.Load() {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

// Two instances, one of which gets only occasional replies from the store: together they use what the bucket holds plus
// its refill, for any duration. Usage that one admits by local fallback must not be granted to the other by the store.
func TestDebtsBesideOthers(t *testing.T) {
	for _, algorithm := range []sluice.Algorithm{sluice.TokenBucket, sluice.LeakyBucket} {
		synctest.Test(t, func(t *testing.T) {
			const rate, burst, seconds = 50, 50, 120
			rule := mustRule(t, sluice.Rule{Name: "r", Limit: sluice.PerSecond(rate).WithBurst(burst).WithAlgorithm(algorithm)})
			two := sluice.WithInstances(func() int { return 2 })
			far := newFar()
			shaky := &farStore{Store: far.Store}
			always, sometimes := sluice.Must(sluice.NewWithRules(far, []*sluice.Rule{rule}, two)), sluice.Must(sluice.NewWithRules(shaky, []*sluice.Rule{rule}, two))
			var admitted, local int64
			ask := func(l *sluice.Limiter) {
				d := mustAllow(t, l, "k", 1)
				if admitted += d.Granted; d.Source == sluice.SourceFailLocal {
					local += d.Granted
				}
			}
			for tick := range 100 * seconds { // each instance requests twice the full rate
				switch tick % 100 {
				case 40:
					shaky.disturb(refuses)
				case 70:
					shaky.disturb(nil)
				}
				ask(sometimes)
				ask(always)
				pause(10 * time.Millisecond)
			}
			if most := int64(burst + rate*seconds + burst/2); admitted > most || local < rate*seconds/20 {
				t.Errorf("%v: %d admitted in %d s, of them %d without the store; want at most %d", algorithm, admitted, seconds, local, most)
			}
			if err := errors.Join(always.Close(t.Context()), sometimes.Close(t.Context())); err != nil {
				t.Error(err)
			}
		})
	}
}

// Two instances get requests for a key before, during and after an outage. The first to recover does not use quota that
// the other has admitted and not yet reported.
func TestDebtsOfTheOther(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			const limit, processes = 100, 2
			rnd := rand.New(rand.NewPCG(seed, 2))
			algorithm := []sluice.Algorithm{sluice.FixedWindow, sluice.TokenBucket, sluice.SlidingWindowLog, sluice.SlidingWindowCounter}[seed%4]
			far := newFar()
			rule := mustRule(t, sluice.Rule{Name: "r", Limit: sluice.PerDay(limit).WithAlgorithm(algorithm)})
			var all [processes]*sluice.Limiter
			for i := range all {
				all[i] = sluice.Must(sluice.NewWithRules(far, []*sluice.Rule{rule}, sluice.WithInstances(func() int { return processes })))
			}
			admitted := int64(0)
			askFor := func(d time.Duration, most int64) {
				for end := time.Now().Add(d); time.Now().Before(end); pause(time.Duration(rnd.Int64N(int64(20 * time.Millisecond)))) {
					if admitted < most {
						admitted += mustAllow(t, all[rnd.IntN(processes)], "k", 1).Granted
					} else { // for another key
						mustAllow(t, all[rnd.IntN(processes)], "other", 1)
					}
				}
			}
			askFor(time.Second, 20)
			for _, l := range all { // so that each sees the remaining quota, except for what the others take now
				admitted += mustAllow(t, l, "k", 1).Granted
			}
			far.disturb(refuses)
			askFor(time.Second+time.Duration(rnd.Int64N(int64(8*time.Second))), 20+rnd.Int64N(60))
			far.disturb(nil)
			askFor(20*time.Second, 1000)
			if admitted > limit+2*(processes-1) || admitted < limit-processes {
				t.Errorf("seed %d, %v: %d admitted of %d", seed, algorithm, admitted, limit)
			}
			for _, l := range all {
				if err := l.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
