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
	poolable    bool   // the request may take one
	smallBody   []byte // its body
	conn        *pooledConn
	stopClosing func() bool // prevents closing the connection when the request ends

	// Over http.Transport:
	upgrade string
	body    *sentBody // nil if there is none
	cancel  context.CancelCauseFunc

	resend resend
	timer  *watch        // made when it is first needed
	phase  atomic.Uint32 // set by the handler's goroutine alone, see [roundTrip.in]

	informational struct {
		mu      sync.Mutex // guards the following; it is not held while writing
		waiting []informational
	}

	// mu guards the following, and w and control against callbacks on other goroutines (timers, http.Transport): those hold
	// it, and return at once unless the turn is still their own.
	mu      sync.Mutex
	attempt int   // number of the attempt in progress; it changes when one begins and when one ends
	stalled stall // why the round trip was given up
}

// phase is how far a round trip has got.
type phase uint32

const (
	receiving  phase = iota // the small body of a request for the pool is read
	sending                 // a server is asked
	answered                // the head of its answer is here: no informational response can come before it any more
	delivering              // the body of the answer is copied, and the server is waited for
	passing                 // a piece of it is being written to the caller
	phases
)

var phaseNames = [phases]string{"receiving", "sending", "answered", "delivering", "passing"}

func (p phase) String() string { return phaseNames[p] }

// in returns the phase of the round trip. Timers and the goroutines of http.Transport ask for it too.
func (rt *roundTrip) in() phase { return phase(rt.phase.Load()) }

func (rt *roundTrip) enter(p phase) { rt.phase.Store(uint32(p)) }

// beginAttempt begins an attempt.
func (rt *roundTrip) beginAttempt() {
	rt.enter(sending)
	rt.endAttempt()
}

// endAttempt ends an attempt: its callbacks may still run, also after the handler has returned, when the connections serve other
// requests and net/http panics on calls of the writer.
func (rt *roundTrip) endAttempt() {
	rt.mu.Lock()
	rt.attempt++
	rt.mu.Unlock()
}

// send has the server answer, and returns when the head of the answer is here.
func (rt *roundTrip) send(s *server) *failure {
	if s.pool != nil && rt.poolable {
		return rt.roundTripHTTP1(s)
	}
	return rt.roundTripTransport(s)
}

var (
	errProtocol = errors.New("it switched to a protocol that nobody asked for")
	errStatus   = errors.New("the status of its answer is not between 100 and 999")
)

// checkStatus refuses what cannot be handed on: net/http panics when it is told to write a status like 99, and only a
// caller who asked for another protocol can be told that it is spoken now.
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

// deliver hands the server's answer to the caller as it comes.
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
		delete(res.Header, "Content-Length") // the server will say the same: it is one field less to carry
	}
	g.merge(h, res.Header)
	if len(h["Content-Type"]) == 0 {
		h["Content-Type"] = nil // net/http would guess one from the body otherwise, nosniff or not
	}
	for name := range res.Trailer {
		h.Add("Trailer", name)
	}
	if announced > 0 && rt.r.ProtoMajor == 1 {
		delete(h, "Content-Length") // in HTTP/1 an answer has a length or trailers
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
			g.succeeded(s) // as far as it was let
		} else {
			g.log.warn("an answer broke off", g, s, err)
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

// closeUnread has the caller's connection closed after the response if the request's body may be left unread. net/http would
// read on after the handler, and with full duplex a body that ends there makes it panic on the connection's next request.
func (rt *roundTrip) closeUnread() {
	if rt.body != nil && rt.r.ProtoMajor == 1 && !rt.body.isComplete() {
		rt.w.Header().Set("Connection", "close")
	}
}

// errCaller is a caller that cannot be written to.
var errCaller = errors.New("writing to the caller")

// longBody is how long a response lasts that speaks for its server before it is complete: streams may last for days.
const longBody = 10 * time.Second

// copyBody copies until the end. What has come is sent on before waiting for more.
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

// pass writes a piece of the body to the caller, and sends it unless it is the last.
func (rt *roundTrip) pass(piece []byte, more bool) error {
	rt.enter(passing)
	defer rt.enter(delivering)
	if rt.res.ProtoMajor == 2 { // what the server sends ahead is held here
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

// headDelay is how long the head of an answer waits for its body: most bodies come with it, and then one write does.
const headDelay = time.Millisecond

// readFirst reads the first of a body. If that takes long, the head goes ahead.
func (rt *roundTrip) readFirst(buf []byte) (int, error) {
	var mu sync.Mutex // not the round trip's, which must be free when writing gets stuck
	read := false
	t := time.AfterFunc(headDelay, func() {
		mu.Lock()
		defer mu.Unlock()
		if !read {
			_ = rt.control.Flush() // the next write fails too
		}
	})
	n, err := rt.res.Body.Read(buf)
	mu.Lock()
	read = true
	mu.Unlock()
	t.Stop()
	return n, err
}

// ready reports whether some of the body is here already.
func (rt *roundTrip) ready() bool { return rt.conn != nil && rt.conn.in.Buffered() > 0 }

// bodyBuffered reports whether all of a response is here, and so short that net/http counts it before it writes the head.
func (rt *roundTrip) bodyBuffered() bool {
	n := rt.res.ContentLength
	return rt.conn != nil && n > 0 && n <= countedBody && int64(rt.conn.in.Buffered()) >= n && rt.r.Method != http.MethodHead
}

// countedBody is less than what net/http gathers of an answer before it writes its head.
const countedBody = 2000

// trailers sends what came after the body. Names that were not announced get Go's prefix, which does not show.
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
	// An answer without a body would be sent with a length, and then there are no trailers.
	_ = rt.control.Flush()
}

// end lets go of everything. The answer is complete if it has been read to its end.
func (rt *roundTrip) end(complete bool) {
	rt.stopSending()
	if rt.conn == nil {
		rt.res.Body.Close() // not before the request's body: the transport would wait for that
	} else {
		rt.release(complete && !rt.res.Close)
	}
}

// stopSending ends the attempt, and what of it is in progress elsewhere.
func (rt *roundTrip) stopSending() {
	rt.endAttempt()
	if rt.cancel != nil {
		rt.cancel(nil)
	}
	if rt.body != nil {
		rt.body.stop(&rt.control)
	}
	if rt.timer != nil {
		rt.timer.end() // after the body, which starts it anew
		rt.timer = nil
	}
}
