package upstream

import (
	"net/http"
	"net/textproto"
	"time"

	"github.com/sluiceproject/sluice/internal/bounds"
)

// forwards1xx reports whether an informational response is forwarded to the caller.
func (rt *roundTrip) forwards1xx(code int) (bool, error) {
	switch code {
	case http.StatusContinue:
		return false, nil // net/http sends it when the caller's body is read
	case http.StatusSwitchingProtocols:
		return false, errProtocol // in HTTP/2 it is not allowed
	}
	return rt.r.ProtoAtLeast(1, 1), nil // an HTTP/1.0 caller would treat it as the final response
}

// informational is a 1xx response that waits to be written to the caller.
type informational struct {
	attempt, code int
	header        textproto.MIMEHeader
}

// maxInformational is the maximum number of waiting 1xx responses. Further ones are dropped, because none is required.
const maxInformational = 8

// forward1xx queues an informational response for the caller. It must not block, because it is called on the goroutine that
// reads the server's connection, which other requests may share.
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

// writeNext1xxLocked writes the next waiting informational response, and reports whether there was one.
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

// write1xx writes an informational response to the caller. It fails after Timeouts.Idle if the caller does not read, because
// the attempt cannot end while the write is in progress.
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
	// With this field net/http's HTTP/2 server writes a copy of h. Otherwise it would read h in the background after
	// WriteHeader has returned because the caller disconnected, and a concurrent map iteration and write ends the process.
	h["Content-Length"] = nil
	_ = rt.control.SetWriteDeadline(time.Now().Add(rt.group.cfg.Timeouts.Idle))
	rt.w.WriteHeader(code)
	_ = rt.control.SetWriteDeadline(time.Time{})
	clear(h)
	for name, values := range kept {
		h[name] = values
	}
}
