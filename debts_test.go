package sluice_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice"
)

// What was admitted while the store was away is on its way to the store when somebody else is answered by it, and then does
// not arrive. It is still owed.
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
		for d := ask(); d.Source != sluice.SourceStore; d = ask() {
			pause(sluice.DefaultBudget)
		}
		close(held)
		payer.Wait()
		far.disturb = nil
		for d := ask(); d.Allowed || d.Source != sluice.SourceStore; d = ask() {
			pause(time.Second)
		}
		if admitted > 11 { // one may be answered by the store while the payment is on its way
			t.Errorf("%d of 10 were admitted", admitted)
		}
	})
}
