package envoyratelimit

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// storeServer is a server of the store that can be checked separately.
type storeServer struct {
	name string // address without password
	ping func(context.Context) error
}

const (
	// checkInterval is the time between two checks of the store, and the timeout of each.
	checkInterval = time.Second
	// checkFailures is the number of consecutive failed checks that make a server unavailable. One lost packet does not, unless a
	// request failed too.
	checkFailures = 2
	// quietChecks is the number of checks without a failed request after which the recovery of store calls is logged.
	quietChecks = 3
	// graceChecks is the number of checks after the recovery of a server in which failed requests are attributed to its outage:
	// they were in flight, or the circuit breaker has not closed yet.
	graceChecks = 5
)

// storeWatch checks the servers of the store every second, and at once when a request has failed. It logs one line when a
// server becomes unavailable and one when it is available again, regardless of the number of failed requests. It logs in the
// same way that requests fail although all servers are available, for example because of missing memory or permissions.
type storeWatch struct {
	log      *slog.Logger
	report   func(healthy bool) // called after the first check, and when the health of all servers has changed
	failures chan error         // the first failed request since the last check
	answered atomic.Bool        // a request was counted since the last check

	// Only the goroutine of run uses the fields below.
	servers []*watchedServer
	known   bool // a check was made
	healthy bool // all servers were available at the last check
	failing bool // requests fail while all servers are available
	quiet   int  // checks without a failed request, while failing
	grace   int  // remaining checks of graceChecks
	slow    bool // a request timed out before the last check and none was counted since
}

type watchedServer struct {
	storeServer
	failures    int // consecutive
	unavailable bool
	err         error // error of the last check
}

func newStoreWatch(log *slog.Logger, report func(healthy bool)) *storeWatch {
	return &storeWatch{log: log, report: report, failures: make(chan error, 1)}
}

// requestFailed records that the store failed a request. It does not block.
func (w *storeWatch) requestFailed(err error) {
	if errors.Is(err, errEarly) { // connect logs it
		return
	}
	select {
	case w.failures <- err:
	default:
	}
}

// requestCounted records that the store counted a request.
func (w *storeWatch) requestCounted() {
	if !w.answered.Load() { // a write per request would cause contention between CPUs
		w.answered.Store(true)
	}
}

// run checks the servers until ctx is done.
func (w *storeWatch) run(ctx context.Context, servers []storeServer) {
	for _, s := range servers {
		w.servers = append(w.servers, &watchedServer{storeServer: s})
	}
	ticks := time.NewTicker(checkInterval)
	defer ticks.Stop()
	var failed error // of a request since the last check
	for {
		w.check(ctx, failed)
		failures := w.failures
		if failed != nil { // at most one additional check per interval
			failures = nil
		}
		failed = nil
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
			select {
			case failed = <-w.failures:
			default:
			}
		case failed = <-failures:
		}
	}
}

// check pings all servers concurrently and logs changes.
func (w *storeWatch) check(ctx context.Context, failed error) {
	answered := w.answered.Swap(false)
	w.ping(ctx)
	if ctx.Err() != nil {
		return
	}
	healthy := true
	for _, s := range w.servers {
		s.update(w.log, !w.known || failed != nil)
		healthy = healthy && !s.unavailable
	}
	w.checkRequests(failed, answered, healthy)
	if !w.known || healthy != w.healthy {
		w.known, w.healthy = true, healthy
		w.report(healthy)
	}
}

func (w *storeWatch) ping(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, checkInterval)
	defer cancel()
	var group sync.WaitGroup
	for _, s := range w.servers {
		group.Go(func() { s.err = s.ping(bounded) })
	}
	group.Wait()
}

// update evaluates the last check of a server and logs a change. If one is set, one failure makes the server unavailable.
func (s *watchedServer) update(log *slog.Logger, one bool) {
	if s.err == nil {
		if s.unavailable {
			log.Warn("store available again", "address", s.name)
		}
		s.failures, s.unavailable = 0, false
		return
	}
	s.failures++
	if !s.unavailable && (one || s.failures >= checkFailures) {
		s.unavailable = true
		log.Error("store unavailable", "address", s.name, "error", s.err)
	}
}

// checkRequests logs that requests fail although all servers are available. A single timeout is not logged, because the
// circuit breaker logs slow servers; it is logged if the next request fails too and none was counted in between.
func (w *storeWatch) checkRequests(failed error, answered, healthy bool) {
	switch {
	case !healthy: // explains failed requests
		w.failing, w.slow, w.grace = false, false, graceChecks
	case w.grace > 0:
		w.grace--
	case w.failing:
		if failed != nil {
			w.quiet = 0
		} else if answered {
			w.quiet++
		}
		if w.quiet >= quietChecks {
			w.failing = false
			w.log.Warn("store calls recovered")
		}
	case failed != nil && (w.slow && !answered || !timedOut(failed)):
		w.failing, w.quiet, w.slow = true, 0, false
		w.log.Error("store calls failing", "error", failed)
	case failed != nil:
		w.slow = true
	case answered:
		w.slow = false
	}
}

func timedOut(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
}
