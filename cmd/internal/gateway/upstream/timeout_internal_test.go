package upstream

import (
	"context"
	"net/http"
	"testing"
	"time"
)

// deadlineWriter records the deadlines that a round trip sets.
type deadlineWriter struct {
	http.ResponseWriter
	read, write bool
}

func (w *deadlineWriter) SetReadDeadline(time.Time) error  { w.read = true; return nil }
func (w *deadlineWriter) SetWriteDeadline(time.Time) error { w.write = true; return nil }

// The side that caused an idle timeout depends only on the phase, and the reaction only on the side.
func TestStalls(t *testing.T) {
	for _, c := range []struct {
		in          phase
		noticed     silence
		reading     bool // the request's body is being read
		before      stall
		want        stall
		cause       error
		read, write bool // deadlines that are set on the caller's connection
	}{
		{in: receiving, want: callerStalled, cause: errCallerStalled, read: true},
		{in: sending, want: serverStalled, cause: errIdle},
		{in: sending, reading: true, want: callerStalled, cause: errCallerStalled, read: true},
		{in: sending, before: callerStalled, want: callerStalled, cause: errIdle},
		{in: sending, before: serverStalled, reading: true, want: callerStalled, cause: errCallerStalled, read: true},
		{in: answered, want: serverStalled, cause: errIdle},
		{in: answered, reading: true, want: callerStalled, cause: errCallerStalled, read: true},
		{in: delivering, want: serverStalled, cause: errIdle, write: true},
		{in: delivering, reading: true, want: serverStalled, cause: errIdle, write: true},
		{in: delivering, noticed: crowdedOut, want: callerNotReading, cause: errIdle, write: true},
		{in: delivering, before: callerStalled, want: callerStalled, cause: errIdle, write: true},
		{in: delivering, before: callerNotReading, want: serverStalled, cause: errIdle, write: true},
		{in: passing, want: callerNotReading, cause: errIdle, write: true},
		{in: passing, reading: true, want: callerNotReading, cause: errIdle, write: true},
		{in: passing, noticed: crowdedOut, want: callerNotReading, cause: errIdle, write: true},
		{in: passing, before: callerStalled, want: callerNotReading, cause: errIdle, write: true},
	} {
		w := &deadlineWriter{}
		ctx, cancel := context.WithCancelCause(t.Context())
		rt := &roundTrip{control: *http.NewResponseController(w), cancel: cancel, body: &sentBody{}, stalled: c.before}
		rt.body.reading.Store(c.reading)
		rt.enter(c.in)
		rt.expire(rt.attempt+1, c.noticed)
		if rt.stalled != c.before || ctx.Err() != nil || w.read || w.write {
			t.Errorf("%v: the timer of another attempt has an effect", c.in)
		}
		rt.expire(rt.attempt, c.noticed)
		if rt.stalled != c.want || context.Cause(ctx) != c.cause || w.read != c.read || w.write != c.write {
			t.Errorf("%+v: %v because of %v; deadlines to read %v, to write %v", c, rt.stalled, context.Cause(ctx), w.read, w.write)
		}
	}
}

// An informational response is written only before the final response.
func TestPhases(t *testing.T) {
	for in := range phases {
		w := &statusWriter{header: http.Header{}}
		rt := &roundTrip{group: &Group{}, w: w, control: *http.NewResponseController(w)}
		rt.enter(in)
		rt.write1xx(rt.attempt, http.StatusEarlyHints, nil)
		if (w.status != 0) != (in < answered) {
			t.Errorf("%v: status %d was written", in, w.status)
		}
	}
}

type statusWriter struct {
	http.ResponseWriter
	header http.Header
	status int
}

func (w *statusWriter) Header() http.Header    { return w.header }
func (w *statusWriter) WriteHeader(status int) { w.status = status }
