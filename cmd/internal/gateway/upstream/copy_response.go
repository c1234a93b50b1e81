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
func (g *Group) deliver(x *exchange, s *server) {
	defer x.end()
	res := x.res
	if res.StatusCode == http.StatusSwitchingProtocols {
		g.succeeded(s)
		g.connect(x, s)
		return
	}
	h := x.w.Header()
	StripHopByHop(res.Header)
	stripTrailers(res.Trailer)
	announced := len(res.Trailer)
	if x.isHere() {
		delete(res.Header, "Content-Length") // the server will say the same: it is one field less to carry
	}
	g.merge(h, res.Header)
	for name := range res.Trailer {
		h.Add("Trailer", name)
	}
	if announced > 0 && x.r.ProtoMajor == 1 {
		delete(h, "Content-Length") // in HTTP/1 an answer has a length or trailers
	}
	x.closeUnread()
	x.w.WriteHeader(res.StatusCode)
	if res.ProtoMajor == 2 {
		x.slow = g.cfg.slow
	}
	if err := g.copyBody(x, s); err != nil {
		x.mu.Lock()
		idled, unread := x.idled, x.unread
		x.mu.Unlock()
		if idled {
			err = errors.Join(errIdle, err)
		}
		if x.r.Context().Err() != nil || unread || errors.Is(err, errCaller) {
			g.succeeded(s) // as far as it was let
		} else {
			g.log.warn("an answer broke off", g, s, err)
			f := &failure{kind: failBroken, answered: true, err: err}
			x.excuse(f, 0)
			g.failed(s, f)
		}
		panic(http.ErrAbortHandler)
	}
	g.succeeded(s)
	x.whole = true
	x.trailers(h, announced)
}

// errCaller is a caller that cannot be written to.
var errCaller = errors.New("writing to the caller")

// longBody is how long a response lasts that speaks for its server before it is complete: streams may last for days.
const longBody = 10 * time.Second

// copyBody copies until the end. What has come is sent on before waiting for more.
func (g *Group) copyBody(x *exchange, s *server) error {
	res, began := x.res, time.Now()
	if res.Body == http.NoBody {
		return nil
	}
	x.delivering.Store(true)
	if x.line == nil {
		x.touch()
	}
	buf := buffers.Get().(*[32 << 10]byte)
	defer buffers.Put(buf)
	for first := true; ; first = false {
		var n int
		var err error
		if first && !x.ready() {
			n, err = x.readFirst(buf[:])
		} else {
			n, err = res.Body.Read(buf[:])
		}
		if err := x.pass(buf[:n], err == nil); err != nil {
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
func (x *exchange) pass(piece []byte, more bool) error {
	x.passing.Store(true)
	defer x.passing.Store(false)
	if x.slow != nil {
		defer x.slow.leave(x.slow.enter(x))
	}
	if len(piece) > 0 {
		if _, err := x.w.Write(piece); err != nil {
			return errors.Join(errCaller, err)
		}
	}
	if more {
		x.touch()
		if err := x.control.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return errors.Join(errCaller, err)
		}
	}
	return nil
}

// headDelay is how long the head of an answer waits for its body: most bodies come with it, and then one write does.
const headDelay = time.Millisecond

// readFirst reads the first of a body. If that takes long, the head goes ahead.
func (x *exchange) readFirst(buf []byte) (int, error) {
	var mu sync.Mutex // not the exchange's, which must be free when writing gets stuck
	read := false
	t := time.AfterFunc(headDelay, func() {
		mu.Lock()
		defer mu.Unlock()
		if !read {
			_ = x.control.Flush() // the next write fails too
		}
	})
	n, err := x.res.Body.Read(buf)
	mu.Lock()
	read = true
	mu.Unlock()
	t.Stop()
	return n, err
}

// ready says whether some of the body is here already.
func (x *exchange) ready() bool { return x.line != nil && x.line.in.Buffered() > 0 }

// isHere says whether all of an answer is here, and so short that net/http counts it before it writes the head.
func (x *exchange) isHere() bool {
	n := x.res.ContentLength
	return x.line != nil && n > 0 && n <= countedBody && int64(x.line.in.Buffered()) >= n && x.r.Method != http.MethodHead
}

// countedBody is less than what net/http gathers of an answer before it writes its head.
const countedBody = 2000

// trailers sends what came after the body. Names that were not announced get Go's prefix, which does not show.
func (x *exchange) trailers(h http.Header, announced int) {
	stripTrailers(x.res.Trailer)
	if len(x.res.Trailer) == 0 {
		return
	}
	if len(x.res.Trailer) == announced {
		for name, values := range x.res.Trailer {
			h[name] = values
		}
	} else {
		for name, values := range x.res.Trailer {
			h[http.TrailerPrefix+name] = values
		}
	}
	// An answer without a body would be sent with a length, and then there are no trailers.
	_ = x.control.Flush()
}

func sameProtocol(asked string, answer http.Header) bool {
	return strings.EqualFold(asked, upgradeOf(answer))
}
