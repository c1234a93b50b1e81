package sluice_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice"
)

// What was admitted while the store was away is on its way to the store, and then does not arrive. It is still owed, and
// meanwhile no other call is answered by the store, which would admit the same once more.
func TestDebtsOutliveAPaymentThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far := newFar()
		rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: "r", Limit: sluice.PerDay(10).With(sluice.FixedWindow)}))
		l := sluice.Must(sluice.NewRules(far, []*sluice.Rule{rule}))
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
		far.disturb = refuses
		for range 6 {
			ask()
		}
		held, onItsWay := make(chan struct{}), false
		far.disturb = func(_ context.Context, take *sluice.Take) error {
			if take.Min == 0 { // what everybody asks
				return nil
			}
			onItsWay = true
			<-held
			return errAway
		}
		var payer sync.WaitGroup
		for !onItsWay {
			pause(time.Second)
			payer.Go(func() { ask() })
			synctest.Wait()
		}
		for range 3 {
			if d := ask(); d.Source == sluice.SourceStore {
				t.Errorf("answered before the payment: %+v", d)
			}
			pause(sluice.DefaultBudget)
		}
		close(held)
		payer.Wait()
		far.disturb = nil
		for d := ask(); d.Allowed || d.Source != sluice.SourceStore; d = ask() {
			pause(time.Second)
		}
		if admitted > 10 {
			t.Errorf("%d of 10 were admitted", admitted)
		}
	})
}
