package upstream

import (
	"net/http"
	"net/textproto"
	"time"

	"github.com/sluiceproject/sluice/internal/bounds"
)

// forwards1xx reports whether an informational response is handed on to the caller.
func (rt *roundTrip) forwards1xx(code int) (bool, error) {
	switch code {
	case http.StatusContinue:
		return false, nil // reading the caller's body tells it so
	case http.StatusSwitchingProtocols:
		return false, errProtocol // in HTTP/2, where it is one of these
	}
	return rt.r.ProtoAtLeast(1, 1), nil // a caller of HTTP/1.0 would take it for the response
}

// informational is a response with a status of 1xx that waits to be written to the caller.
type informational struct {
	attempt, code int
	header        textproto.MIMEHeader
}

// maxInformational is the number of those. Further ones are dropped: none is needed.
const maxInformational = 8

// forward1xx queues an informational response for the caller. It is called where a connection to the server is read, which
// others may share, and so waits for nothing.
func (rt *roundTrip) forward1xx(turn, code int, header textproto.MIMEHeader) error {
	if ok, err := rt.forwards1xx(code); !ok {
		return err
	}
	rt.informational.mu.Lock()
	defer rt.informational.mu.Unlock()
	if len(rt.informational.waiting) == maxInformational {
		bounds.Interims.Reached()
		return nil
	}
	rt.informational.waiting = append(rt.informational.waiting, informational{turn, code, header})
	if len(rt.informational.waiting) == 1 {
		go func() {
			for more := true; more; {
				rt.mu.Lock()
				more = rt.writeNext1xxLocked()
				rt.mu.Unlock()
			}
		}()
	}
	return nil
}

// writeNext1xxLocked writes the next informational response, and reports whether there was one.
func (rt *roundTrip) writeNext1xxLocked() bool {
	rt.informational.mu.Lock()
	if len(rt.informational.waiting) == 0 {
		rt.informational.mu.Unlock()
		return false
	}
	next := rt.informational.waiting[0]
	rt.informational.waiting = rt.informational.waiting[1:]
	rt.informational.mu.Unlock()
	rt.write1xxLocked(next.attempt, next.code, next.header)
	return true
}

// write1xx writes an informational response to the caller. A caller that does not read it is given up after Timeouts.Idle: the
// attempt cannot end while it is being written.
func (rt *roundTrip) write1xx(turn, code int, header textproto.MIMEHeader) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.write1xxLocked(turn, code, header)
}

func (rt *roundTrip) write1xxLocked(turn, code int, header textproto.MIMEHeader) {
	if turn != rt.attempt || rt.in() >= answered {
		return
	}
	h := rt.w.Header()
	kept := h.Clone()
	clear(h)
	for name, values := range header {
		h[name] = values
	}
	StripHopByHop(h)
	// With it net/http's HTTP/2 server writes a copy. It would read h in the background otherwise, after WriteHeader has
	// returned because the caller left, and iterating over a map that is written ends the process.
	h["Content-Length"] = nil
	_ = rt.control.SetWriteDeadline(time.Now().Add(rt.group.cfg.Timeouts.Idle))
	rt.w.WriteHeader(code)
	_ = rt.control.SetWriteDeadline(time.Time{})
	clear(h)
	for name, values := range kept {
		h[name] = values
	}
}
