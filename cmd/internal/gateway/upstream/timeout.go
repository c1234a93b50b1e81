package upstream

import (
	"sync/atomic"
	"time"
)

// stall is the side that caused an idle timeout.
type stall uint8

const (
	moving           stall = iota // no idle timeout
	serverStalled                 // the server neither reads nor sends
	callerStalled                 // the caller stopped sending its request
	callerNotReading              // the caller does not read the response
	stalls
)

var stallNames = [stalls]string{"moving", "server stalled", "caller stalled", "caller not reading"}

func (s stall) String() string { return stallNames[s] }

// silence is the reason why a round trip is aborted.
type silence uint8

const (
	quiet        silence = iota // no data was transferred within the idle timeout
	quietReading                // the same, while the body of the request was being read
	crowdedOut                  // too many responses wait for their callers to read, and this one has waited longest
	silences
)

// blames is the side that caused a silence, by the phase of the round trip.
var blames = [phases][silences]stall{
	receiving:  {quiet: callerStalled, quietReading: callerStalled, crowdedOut: callerStalled},
	sending:    {quiet: serverStalled, quietReading: callerStalled, crowdedOut: serverStalled},
	answered:   {quiet: serverStalled, quietReading: callerStalled, crowdedOut: serverStalled},
	delivering: {quiet: serverStalled, quietReading: serverStalled, crowdedOut: callerNotReading},
	passing:    {quiet: callerNotReading, quietReading: callerNotReading, crowdedOut: callerNotReading},
}

// resetIdleTimer restarts the idle timer. It is called whenever data was transferred.
func (rt *roundTrip) resetIdleTimer() {
	idle := rt.group.cfg.Timeouts.Idle
	if rt.timer == nil {
		turn := rt.attempt
		rt.timer = after(idle, func() { rt.expire(turn, quiet) })
		return
	}
	rt.timer.Reset(idle)
}

// expire aborts the attempt, because of an idle timeout or because the caller is too slow.
func (rt *roundTrip) expire(turn int, noticed silence) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if turn != rt.attempt {
		return
	}
	if noticed == quiet && rt.body != nil && rt.body.reading.Load() {
		noticed = quietReading
	}
	in := rt.in()
	blamed := blames[in][noticed]
	if blamed != serverStalled || rt.stalled != callerStalled { // the server may be waiting for a stalled caller
		rt.stalled = blamed
	}
	if rt.conn != nil {
		rt.conn.Close()
	}
	cause := errIdle
	if blamed == callerStalled {
		cause = errCallerStalled
	}
	if rt.cancel != nil {
		rt.cancel(cause)
	}
	if blamed == callerStalled {
		_ = rt.control.SetReadDeadline(past) // the transport does not release a body while it is being read
	}
	if in >= delivering {
		// Only a deadline interrupts a write to a caller that does not read.
		_ = rt.control.SetWriteDeadline(past)
	}
}

// past is a deadline that interrupts a blocked read or write.
var past = time.Unix(1, 0)

// errIdle is the error of an idle timeout of the server.
var errIdle error = timeoutError("no data was sent or received within the idle timeout")

type timeoutError string

func (e timeoutError) Error() string { return string(e) }
func (timeoutError) Timeout() bool   { return true }
func (timeoutError) Temporary() bool { return false }

// A watch is a timer that drops its function when it ends. The runtime may keep a stopped timer until its time, and with the
// function the request and its body.
type watch struct {
	*time.Timer
	f atomic.Pointer[func()]
}

// after returns a watch that calls f after d, unless it ends before.
func after(d time.Duration, f func()) *watch {
	w := &watch{}
	w.f.Store(&f)
	w.Timer = time.AfterFunc(d, func() {
		if f := w.f.Load(); f != nil {
			(*f)()
		}
	})
	return w
}

// end stops the timer and drops its function.
func (w *watch) end() {
	w.Stop()
	w.f.Store(nil)
}
