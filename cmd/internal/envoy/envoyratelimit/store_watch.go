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

// storeServer is a server of the store, as far as it can be checked by itself.
type storeServer struct {
	name string // its address, without a password
	ping func(context.Context) error
}

const (
	// checkInterval is the time between two checks of the store, and the timeout of each.
	checkInterval = time.Second
	// checkFailures is the number of consecutive failed checks that make a server unavailable. One lost packet does not, unless a
	// request failed too.
	checkFailures = 2
	// quietChecks is the number of checks without a failed request after which calls are said to succeed again.
	quietChecks = 3
	// graceChecks is the number of checks after the return of a server in which failed requests are its outage's: they were under
	// way, or the circuit breaker has not closed yet.
	graceChecks = 5
)

// storeWatch checks the servers of the store every second, and at once when a request has failed. It logs one line when a
// server becomes unavailable and one when it is available again, however many requests fail meanwhile. A store whose servers
// reply, and that fails requests nevertheless, such as one without memory or rights, is logged likewise.
type storeWatch struct {
	log      *slog.Logger
	report   func(healthy bool) // called after the first check, and when the health of all servers has changed
	failures chan error         // the first failed request since the last check
	answered atomic.Bool        // a request was counted since the last check

	// Only run and what it calls use the fields below.
	servers []*watchedServer
	known   bool // some check was made
	healthy bool // all servers were available at the last check
	failing bool // requests fail while all servers are available
	quiet   int  // checks without a failed request, while failing
	grace   int  // checks that are left of graceChecks
	slow    bool // a request timed out before the last check, and none was counted since
}

type watchedServer struct {
	storeServer
	failures    int // consecutive
	unavailable bool
	err         error // of the last check
}

func newStoreWatch(log *slog.Logger, report func(healthy bool)) *storeWatch {
	return &storeWatch{log: log, report: report, failures: make(chan error, 1)}
}

// requestFailed notes that the store failed a request. It does not block.
func (w *storeWatch) requestFailed(err error) {
	if errors.Is(err, errEarly) { // the start of the program logs that
		return
	}
	select {
	case w.failures <- err:
	default:
	}
}

// requestCounted notes that the store counted a request.
func (w *storeWatch) requestCounted() {
	if !w.answered.Load() { // a write on each request would have processors wait for each other
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
	var failed error // a request, since the last check
	for {
		w.check(ctx, failed)
		failures := w.failures
		if failed != nil { // no request causes two checks in one interval
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

// check pings all servers at the same time and logs what has changed.
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

// update notes the last check of a server. One failure is enough if it is not the only sign.
func (s *watchedServer) update(log *slog.Logger, one bool) {
	if s.err == nil {
		if s.unavailable {
			log.Warn("store available again", "server", s.name)
		}
		s.failures, s.unavailable = 0, false
		return
	}
	s.failures++
	if !s.unavailable && (one || s.failures >= checkFailures) {
		s.unavailable = true
		log.Error("store unavailable", "server", s.name, "error", s.err)
	}
}

// checkRequests logs requests that fail though all servers are available. One that timed out is no such: the circuit breaker
// logs servers that are too slow. If the next one fails too, and none was counted meanwhile, it is logged.
func (w *storeWatch) checkRequests(failed error, answered, healthy bool) {
	switch {
	case !healthy: // that explains them
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
			w.log.Warn("store calls succeed again")
		}
	case failed != nil && (w.slow && !answered || !timedOut(failed)):
		w.failing, w.quiet, w.slow = true, 0, false
		w.log.Error("store calls fail", "error", failed)
	case failed != nil:
		w.slow = true
	case answered:
		w.slow = false
	}
}

func timedOut(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
}
