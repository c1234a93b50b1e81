package upstream

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
)

var buffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// deliver hands the server's answer to the caller as it comes.
func (g *Group) deliver(x *exchange, s *server) {
	defer x.end()
	res := x.res
	if res.StatusCode == http.StatusSwitchingProtocols {
		g.connect(x, s)
		return
	}
	defer res.Body.Close()
	h := x.w.Header()
	StripHopByHop(res.Header)
	announced := len(res.Trailer)
	g.merge(h, res.Header)
	for name := range res.Trailer {
		h.Add("Trailer", name)
	}
	x.w.WriteHeader(res.StatusCode)
	if err := x.copyBody(); err != nil {
		if x.r.Context().Err() == nil && !errors.Is(err, errCaller) {
			g.log.warn("an answer broke off", s, err)
			s.failures.Add(1)
		}
		panic(http.ErrAbortHandler)
	}
	x.trailers(h, announced)
}

// errCaller is a caller that cannot be written to.
var errCaller = errors.New("writing to the caller")

// copyBody copies until the end. What has come is sent on before waiting for more.
func (x *exchange) copyBody() error {
	res := x.res
	if res.ContentLength == 0 || res.Body == http.NoBody {
		return nil
	}
	if res.ContentLength < 0 && !x.ready() {
		_ = x.control.Flush() // the head; a body of unknown length may take its time
	}
	x.delivering.Store(true)
	buf := buffers.Get().(*[32 << 10]byte)
	defer buffers.Put(buf)
	for {
		n, err := res.Body.Read(buf[:])
		if n > 0 {
			if _, err := x.w.Write(buf[:n]); err != nil {
				return errors.Join(errCaller, err)
			}
		}
		switch err {
		case nil:
		case io.EOF:
			return nil
		default:
			return err
		}
		x.touch()
		if err := x.control.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return errors.Join(errCaller, err)
		}
	}
}

// ready says whether some of the body is here already.
func (x *exchange) ready() bool { return false }

// trailers sends what came after the body. Names that were not announced get Go's prefix, which does not show.
func (x *exchange) trailers(h http.Header, announced int) {
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
