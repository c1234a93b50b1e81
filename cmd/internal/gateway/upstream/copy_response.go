package upstream

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

var buffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// deliver hands the server's answer to the caller as it comes.
func (g *Group) deliver(rt *roundTrip, s *server) {
	defer rt.end()
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
	for name := range res.Trailer {
		h.Add("Trailer", name)
	}
	if announced > 0 && rt.r.ProtoMajor == 1 {
		delete(h, "Content-Length") // in HTTP/1 an answer has a length or trailers
	}
	rt.closeUnread()
	rt.w.WriteHeader(res.StatusCode)
	if res.ProtoMajor == 2 {
		rt.slow = g.cfg.slow
	}
	if err := g.copyBody(rt, s); err != nil {
		rt.mu.Lock()
		idled, unread := rt.timedOut, rt.callerNotReading
		rt.mu.Unlock()
		if idled {
			err = errors.Join(errIdle, err)
		}
		if rt.r.Context().Err() != nil || unread || errors.Is(err, errCaller) {
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
	rt.bodyComplete = true
	rt.trailers(h, announced)
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
	rt.delivering.Store(true)
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
		switch err {
		case nil:
		case io.EOF:
			return nil
		default:
			return err
		}
	}
}

// pass writes a piece of the body to the caller, and sends it unless it is the last.
func (rt *roundTrip) pass(piece []byte, more bool) error {
	rt.passing.Store(true)
	defer rt.passing.Store(false)
	if rt.slow != nil {
		defer rt.slow.leave(rt.slow.enter(rt))
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

// ready says whether some of the body is here already.
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

func sameProtocol(asked string, answer http.Header) bool {
	return strings.EqualFold(asked, upgradeOf(answer))
}
