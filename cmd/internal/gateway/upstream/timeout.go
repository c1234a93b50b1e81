package upstream

import (
	"sync/atomic"
	"time"
)

// stall is who held up a round trip until it was given up.
type stall uint8

const (
	moving           stall = iota // it was not given up
	serverStalled                 // the server neither reads nor sends
	callerStalled                 // the caller stopped sending its request
	callerNotReading              // the caller does not read the answer
	stalls
)

var stallNames = [stalls]string{"moving", "server stalled", "caller stalled", "caller not reading"}

func (s stall) String() string { return stallNames[s] }

// silence is what was noticed of a round trip that is given up.
type silence uint8

const (
	quiet        silence = iota // nothing moved for too long
	quietReading                // nothing moved, and the body of the request was waited for
	crowdedOut                  // too many answers wait for their callers to read, and this one has for longest
	silences
)

// blames says by the phase of a round trip who is to blame for a silence.
var blames = [phases][silences]stall{
	receiving:  {quiet: callerStalled, quietReading: callerStalled, crowdedOut: callerStalled},
	sending:    {quiet: serverStalled, quietReading: callerStalled, crowdedOut: serverStalled},
	answered:   {quiet: serverStalled, quietReading: callerStalled, crowdedOut: serverStalled},
	delivering: {quiet: serverStalled, quietReading: serverStalled, crowdedOut: callerNotReading},
	passing:    {quiet: callerNotReading, quietReading: callerNotReading, crowdedOut: callerNotReading},
}

// resetIdleTimer is called when data moved: nothing may for longer than the idle timeout.
func (rt *roundTrip) resetIdleTimer() {
	idle := rt.group.cfg.Timeouts.Idle
	if rt.timer == nil {
		turn := rt.attempt
		rt.timer = after(idle, func() { rt.expire(turn, quiet) })
		return
	}
	rt.timer.Reset(idle)
}

// expire gives up, because nothing moved for too long, or because the caller is known to be too slow.
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
	if blamed != serverStalled || rt.stalled != callerStalled { // the server may be waiting for such a caller
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
		_ = rt.control.SetReadDeadline(past) // the transport does not let go of a body while it is being read
	}
	if in >= delivering {
		// A caller that does not read holds up the writer, which learns of it this way alone.
		_ = rt.control.SetWriteDeadline(past)
	}
}

// past is a deadline that ends what is waiting now.
var past = time.Unix(1, 0)

// errIdle is a server that stopped in the middle.
var errIdle error = timeoutError("nothing was sent or received for too long")

type timeoutError string

func (e timeoutError) Error() string { return string(e) }
func (timeoutError) Timeout() bool   { return true }
func (timeoutError) Temporary() bool { return false }

// A watch is a timer that lets go of its function when it ends. The runtime may keep a timer that was stopped until its time
// comes, and with it the request and its body.
type watch struct {
	*time.Timer
	f atomic.Pointer[func()]
}

// after calls f later, unless the watch ends before.
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

// end stops the timer for good.
func (w *watch) end() {
	w.Stop()
	w.f.Store(nil)
}
