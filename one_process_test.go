package sluice_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice"
)

// lateStore delays some calls: the request or the reply is late, or the reply is lost.
type lateStore struct {
	*farStore
	mu  sync.Mutex // guards rnd
	rnd *rand.Rand
}

func (s *lateStore) draw() (request, reply time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delays := [2]time.Duration{100 * time.Microsecond, 100 * time.Microsecond}
	if s.rnd.IntN(4) == 0 {
		delays[s.rnd.IntN(2)] = time.Duration(s.rnd.Int64N(int64(4 * sluice.DefaultStoreTimeout)))
	}
	return delays[0], delays[1]
}

func (s *lateStore) Apply(ctx context.Context, takes []sluice.Take, out []sluice.Decision) error {
	request, reply := s.draw()
	answered := make(chan error, 1)
	decisions := make([]sluice.Decision, len(out))
	takes = append([]sluice.Take(nil), takes...)
	go func() {
		pause(request)
		err := s.farStore.Apply(context.WithoutCancel(ctx), takes, decisions)
		pause(reply)
		answered <- err
	}()
	select {
	case err := <-answered:
		copy(out, decisions)
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A single instance never admits more than the limit, however many callers it has and whichever replies are late: usage
// admitted by local fallback while other calls are in progress is counted once.
func TestOneProcessAlone(t *testing.T) {
	const limit = 60
	here := 0
	for seed := range uint64(80) {
		for _, accuracy := range []sluice.Accuracy{sluice.AccuracyExact, sluice.AccuracyLease} {
			synctest.Test(t, func(t *testing.T) {
				s := &lateStore{farStore: newFar(), rnd: rand.New(rand.NewPCG(seed, 1))}
				rule := mustRule(t, sluice.Rule{Name: "r", Limit: sluice.PerDay(limit).WithAlgorithm(sluice.FixedWindow), Accuracy: accuracy})
				l := sluice.Must(sluice.NewWithRules(s, []*sluice.Rule{rule}))
				var admitted, local atomic.Int64
				var all sync.WaitGroup
				for caller := range uint64(12) {
					all.Go(func() {
						rnd := rand.New(rand.NewPCG(seed, caller))
						for range 20 {
							d := mustAllow(t, l, "k", 1+rnd.Int64N(3))
							admitted.Add(d.Granted)
							if d.Source == sluice.SourceFailLocal {
								local.Add(1)
							}
							pause(time.Duration(rnd.Int64N(int64(2 * time.Millisecond))))
						}
					})
				}
				all.Wait()
				if local.Load() > 0 {
					here++
				}
				if n := admitted.Load(); n > limit {
					t.Errorf("seed %d, %v: %d admitted of %d", seed, accuracy, n, limit)
				}
				if err := l.Close(t.Context()); err != nil {
					t.Error(err)
				}
				pause(time.Second) // until all calls have ended
			})
		}
	}
	if here < 100 {
		t.Errorf("only %d runs had decisions made here", here)
	}
}
