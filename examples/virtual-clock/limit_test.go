// Package limit_test shows how to test rate limited code with a virtual clock, without waiting.
package limit_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/memstore"
)

// TestHour needs Go 1.25: in a synctest bubble time advances only when all goroutines wait. The store must be created inside
// the bubble, because it reads the clock when it is created.
func TestHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := sluice.Must(sluice.New(memstore.New(), "exports", sluice.PerHour(2)))
		for i, want := range []bool{true, true, false} {
			if d, err := limiter.Allow(t.Context(), "ada"); err != nil || d.Allowed != want {
				t.Errorf("request %d: allowed %v, error %v", i+1, d.Allowed, err)
			}
		}
		d, _ := limiter.Peek(t.Context(), "ada")
		<-time.After(d.RetryAfter - time.Microsecond)
		if d, _ := limiter.Allow(t.Context(), "ada"); d.Allowed {
			t.Error("allowed a microsecond too early")
		}
		<-time.After(time.Microsecond)
		if d, _ := limiter.Allow(t.Context(), "ada"); !d.Allowed {
			t.Errorf("denied after %v", d.RetryAfter)
		}
	})
}
