package stores

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// TestWatchHealth checks that a failed store is reported within 3 s and its recovery within 1 s, whether it returns
// errors or hangs, and at any phase of the interval. One failed check is not reported.
func TestWatchHealth(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		for _, phase := range []time.Duration{0, 10 * time.Millisecond, 500 * time.Millisecond, 990 * time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				dead, once := make(chan bool, 1), false
				dead <- false
				ping := func(ctx context.Context) error {
					is := <-dead
					failed := once
					once = false
					dead <- is
					switch {
					case is && hangs:
						<-ctx.Done()
						return ctx.Err()
					case is || failed:
						return errors.New("connection refused")
					}
					return nil
				}
				reports := make(chan error, 10)
				ctx, cancel := context.WithCancel(t.Context())
				defer synctest.Wait() // so that it ends with its context
				defer cancel()
				go WatchHealth(ctx, ping, slog.New(slog.DiscardHandler), func(err error) { reports <- err })
				if err := <-reports; err != nil {
					t.Fatal(err)
				}
				<-time.After(10*time.Second + phase)
				change := func(to bool) time.Duration {
					<-dead
					dead <- to
					began := time.Now()
					if err := <-reports; (err != nil) != to {
						t.Fatalf("reported %v, want an error: %t", err, to)
					}
					return time.Since(began)
				}
				if took := change(true); took > 3*time.Second {
					t.Errorf("hangs %t, phase %v: unhealthy after %v", hangs, phase, took)
				}
				<-time.After(10*time.Second + phase)
				if took := change(false); took > time.Second {
					t.Errorf("hangs %t, phase %v: healthy after %v", hangs, phase, took)
				}
				<-dead
				once = true
				dead <- false
				<-time.After(10 * time.Second)
				if len(reports) > 0 {
					t.Errorf("one failed check was reported: %v", <-reports)
				}
			})
		}
	}
}
