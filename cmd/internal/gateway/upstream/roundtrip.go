package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// A roundTrip is one request and its response.
type roundTrip struct {
	group   *Group
	w       http.ResponseWriter
	control http.ResponseController // of the caller's connection
	r       *http.Request
	res     *http.Response

	// Over a connection pool:
	poolable    bool   // the request can be sent by a pool
	smallBody   []byte // its buffered body
	conn        *pooledConn
	stopClosing func() bool // prevents closing the connection at the end of the request's context

	// Over http.Transport:
	upgrade string
	body    *sentBody // nil: none
	cancel  context.CancelCauseFunc

	resend resend
	timer  *watch        // idle timer, created on demand
	phase  atomic.Uint32 // set only by the handler's goroutine, see [roundTrip.in]

	informational struct {
		mu      sync.Mutex // guards the following; it is not held while writing
		waiting []informational
	}

	// mu guards the following, and w and control against callbacks on other goroutines (timers, http.Transport). Callbacks
	// lock it, and return at once if their attempt has ended.
	mu      sync.Mutex
	attempt int   // number of the current attempt; incremented at the start and end of each
	stalled stall // which side caused an idle timeout
}

// phase is the progress of a round trip.
type phase uint32

const (
	receiving  phase = iota // reading the small body of a request for the pool
	sending                 // sending the request, and waiting for the response
	answered                // the head of the response was received: no informational responses are forwarded afterwards
	delivering              // copying the body of the response, waiting for the server
	passing                 // writing a piece of the body to the caller
	phases
)

var phaseNames = [phases]string{"receiving", "sending", "answered", "delivering", "passing"}

func (p phase) String() string { return phaseNames[p] }

// in returns the phase of the round trip. Timers and goroutines of http.Transport call it too.
func (rt *roundTrip) in() phase { return phase(rt.phase.Load()) }

func (rt *roundTrip) enter(p phase) { rt.phase.Store(uint32(p)) }

// beginAttempt starts an attempt.
func (rt *roundTrip) beginAttempt() {
	rt.enter(sending)
	rt.endAttempt()
}

// endAttempt ends an attempt and disables its callbacks. They may still run after the handler has returned, when the connections
// serve other requests and net/http panics on calls of the writer.
func (rt *roundTrip) endAttempt() {
	rt.mu.Lock()
	rt.attempt++
	rt.mu.Unlock()
}

// send sends the request to the server, and returns when the head of the response was received.
func (rt *roundTrip) send(s *server) *failure {
	if s.pool != nil && rt.poolable {
		return rt.roundTripHTTP1(s)
	}
	return rt.roundTripTransport(s)
}

var (
	errProtocol = errors.New("server switched to a protocol that was not requested")
	errStatus   = errors.New("status of the response is out of range 100 to 999")
)

// checkStatus returns an error for a response that cannot be forwarded: net/http panics on a status such as 99, and a 101 is
// only valid if the caller requested the protocol.
func (rt *roundTrip) checkStatus(res *http.Response) error {
	switch code := res.StatusCode; {
	case code < 100 || code > 999:
		return errStatus
	case code == http.StatusSwitchingProtocols && (rt.upgrade == "" || !sameProtocol(rt.upgrade, res.Header)):
		return errProtocol
	}
	return nil
}

var buffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// deliver streams the server's response to the caller.
func (g *Group) deliver(rt *roundTrip, s *server) {
	complete := false
	defer func() { rt.end(complete) }()
	res := rt.res
	if res.StatusCode == http.StatusSwitchingProtocols {
		g.succeeded(s)
		g.connect(rt, s)
		return
	}
	h := rt.w.Header()
	StripHopByHop(res.Header)
	stripTrailers(res.Trailer)
	announced := len(res.Trailer)
	if rt.bodyBuffered() {
		delete(res.Header, "Content-Length") // net/http sets the same value itself, which saves a field
	}
	g.merge(h, res.Header)
	if len(h["Content-Type"]) == 0 {
		h["Content-Type"] = nil // otherwise net/http would guess one from the body, even with nosniff
	}
	for name := range res.Trailer {
		h.Add("Trailer", name)
	}
	if announced > 0 && rt.r.ProtoMajor == 1 {
		delete(h, "Content-Length") // an HTTP/1 response has either a length or trailers
	}
	rt.closeUnread()
	rt.w.WriteHeader(res.StatusCode)
	if err := g.copyBody(rt, s); err != nil {
		rt.mu.Lock()
		stalled := rt.stalled
		rt.mu.Unlock()
		if stalled != moving {
			err = errors.Join(errIdle, err)
		}
		if rt.r.Context().Err() != nil || stalled == callerNotReading || errors.Is(err, errCaller) {
			g.succeeded(s) // the caller ended the response, not the server
		} else {
			g.log.warn("response truncated", g, s, err)
			f := &failure{kind: failBroken, answered: true, err: err}
			rt.excuse(f, 0)
			g.failed(s, f)
		}
		panic(http.ErrAbortHandler)
	}
	g.succeeded(s)
	complete = true
	rt.trailers(h, announced)
}

// closeUnread sets Connection: close if a part of the request's body may be left unread. Otherwise net/http would read it after
// the handler, and with full duplex a body that ends there makes it panic on the next request of the connection.
func (rt *roundTrip) closeUnread() {
	if rt.body != nil && rt.r.ProtoMajor == 1 && !rt.body.isComplete() {
		rt.w.Header().Set("Connection", "close")
	}
}

// errCaller is the error of a failed write to the caller.
var errCaller = errors.New("writing to the caller")

// longBody is the time after which an incomplete response counts as a success of the server, because streams may last for days.
const longBody = 10 * time.Second

// copyBody copies the body to its end. Received data is flushed before waiting for more.
func (g *Group) copyBody(rt *roundTrip, s *server) error {
	res, began := rt.res, time.Now()
	if res.Body == http.NoBody {
		return nil
	}
	rt.enter(delivering)
	if rt.conn == nil {
		rt.resetIdleTimer()
	}
	buf := buffers.Get().(*[32 << 10]byte)
	defer buffers.Put(buf)
	for first := true; ; first = false {
		var n int
		var err error
		if first && !rt.ready() {
			n, err = rt.readFirst(buf[:])
		} else {
			n, err = res.Body.Read(buf[:])
		}
		if err := rt.pass(buf[:n], err == nil); err != nil {
			return err
		}
		if !began.IsZero() && time.Since(began) > longBody {
			g.succeeded(s)
			began = time.Time{}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// pass writes a piece of the body to the caller, and flushes it unless it is the last.
func (rt *roundTrip) pass(piece []byte, more bool) error {
	rt.enter(passing)
	defer rt.enter(delivering)
	if rt.res.ProtoMajor == 2 { // data that the server sends ahead is buffered in this process
		slow := rt.group.cfg.slow
		defer slow.leave(slow.enter(rt))
	}
	if len(piece) > 0 {
		if _, err := rt.w.Write(piece); err != nil {
			return errors.Join(errCaller, err)
		}
	}
	if more {
		rt.resetIdleTimer()
		if err := rt.control.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return errors.Join(errCaller, err)
		}
	}
	return nil
}

// headDelay is the time that the head of a response waits for its body, because most bodies follow at once and then need no
// separate write.
const headDelay = time.Millisecond

// readFirst reads the first piece of a body. If that takes longer than headDelay, the head is sent first.
func (rt *roundTrip) readFirst(buf []byte) (int, error) {
	var mu sync.Mutex // not rt.mu, which must be free if the write blocks
	read := false
	t := time.AfterFunc(headDelay, func() {
		mu.Lock()
		defer mu.Unlock()
		if !read {
			_ = rt.control.Flush() // after an error the next write fails too
		}
	})
	n, err := rt.res.Body.Read(buf)
	mu.Lock()
	read = true
	mu.Unlock()
	t.Stop()
	return n, err
}

// ready reports whether a part of the body is buffered.
func (rt *roundTrip) ready() bool { return rt.conn != nil && rt.conn.in.Buffered() > 0 }

// bodyBuffered reports whether the body is completely buffered, and so short that net/http sets its Content-Length itself.
func (rt *roundTrip) bodyBuffered() bool {
	n := rt.res.ContentLength
	return rt.conn != nil && n > 0 && n <= countedBody && int64(rt.conn.in.Buffered()) >= n && rt.r.Method != http.MethodHead
}

// countedBody is a size below the buffer of net/http, which sets the Content-Length of a body that fits.
const countedBody = 2000

// trailers sets the trailers. Names that were not announced get http.TrailerPrefix, which is not sent.
func (rt *roundTrip) trailers(h http.Header, announced int) {
	stripTrailers(rt.res.Trailer)
	if len(rt.res.Trailer) == 0 {
		return
	}
	if len(rt.res.Trailer) == announced {
		for name, values := range rt.res.Trailer {
			h[name] = values
		}
	} else {
		for name, values := range rt.res.Trailer {
			h[http.TrailerPrefix+name] = values
		}
	}
	// Without a flush, a response without a body would be sent with a Content-Length and without trailers.
	_ = rt.control.Flush()
}

// end releases all resources. complete reports whether the response was read to its end, so that the connection can be reused.
func (rt *roundTrip) end(complete bool) {
	rt.stopSending()
	if rt.conn == nil {
		rt.res.Body.Close() // after the request's body, for which the transport would wait
	} else {
		rt.release(complete && !rt.res.Close)
	}
}

// stopSending ends the attempt on all goroutines.
func (rt *roundTrip) stopSending() {
	rt.endAttempt()
	if rt.cancel != nil {
		rt.cancel(nil)
	}
	if rt.body != nil {
		rt.body.stop(&rt.control)
	}
	if rt.timer != nil {
		rt.timer.end() // after the body, which restarts it
		rt.timer = nil
	}
}
