package admission

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/sluiceproject/sluice"
)

// held is what a request was charged and may get back. The zero held holds nothing.
type held struct {
	reservation *sluice.Reservation
	limiter     *sluice.Limiter
	takes       []sluice.Take
}

// holdTakes remembers how to give takes back.
func holdTakes(limiter *sluice.Limiter, takes []sluice.Take, ds []sluice.Decision) held {
	h := held{limiter: limiter}
	for i := range takes {
		if takes[i].Effective().Algorithm == sluice.Concurrency { // slots are given back by themselves
			continue
		}
		if back, ok := takes[i].Settlement(&ds[i], 0); ok {
			h.takes = append(h.takes, back)
		}
	}
	return h
}

// giveBackTimeout bounds how long a finished request is held up by a store that does not answer.
const giveBackTimeout = time.Second

// giveBack returns what was charged. The request's context may have ended, so it is not waited on. If the store fails the
// limiter sends it later.
func (h *held) giveBack(ctx context.Context) {
	if h.reservation == nil && len(h.takes) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
	defer cancel()
	if h.reservation != nil {
		_ = h.reservation.Cancel(ctx)
		return
	}
	_ = h.limiter.Settle(ctx, h.takes)
}

// serveOutcome serves the request and says what status it ended with.
// The look, if there is one, reads the answer.
func serveOutcome(next http.Handler, w http.ResponseWriter, r *http.Request, l *look, ended func(status int)) {
	o := &outcome{ResponseWriter: w, look: l}
	panicked := true
	defer func() {
		status := o.status
		switch {
		case status == 0 && panicked:
			status = http.StatusInternalServerError
		case status == 0:
			status = http.StatusOK
		}
		if l != nil {
			l.end(w.Header())
		}
		ended(status)
	}()
	next.ServeHTTP(o.wrap(), r)
	panicked = false
}

// outcome is a response writer that remembers the status.
type outcome struct {
	http.ResponseWriter
	status int
	look   *look   // nil: nobody reads the answer
	flight *flight // nil: it passed no gate
}

// Unwrap lets http.ResponseController reach what the writer below can do.
func (o *outcome) Unwrap() http.ResponseWriter { return o.ResponseWriter }

func (o *outcome) WriteHeader(status int) {
	final := status >= 200 || status == http.StatusSwitchingProtocols
	if final {
		o.begin(status)
	}
	o.ResponseWriter.WriteHeader(status)
}

func (o *outcome) Write(b []byte) (int, error) {
	o.begin(http.StatusOK)
	o.flight.wait()
	n, err := o.ResponseWriter.Write(b)
	o.flight.resume()
	if o.look != nil && o.look.body != nil {
		o.look.body(b[:n])
	}
	return n, err
}

// ReadFrom keeps the writer's own way of copying files, unless the body is looked at.
func (o *outcome) ReadFrom(r io.Reader) (int64, error) {
	o.begin(http.StatusOK)
	if o.look != nil && o.look.body != nil {
		return io.Copy(struct{ io.Writer }{o}, r)
	}
	if o.flight == nil {
		return io.Copy(o.ResponseWriter, r)
	}
	o.flight.wait()
	defer o.flight.resume()
	if !isFile(r) {
		r = &upstreamBody{r, o.flight}
	}
	return io.Copy(o.ResponseWriter, r)
}

// isFile reports whether a reader is a file, for which nothing but the client is waited.
func isFile(r io.Reader) bool {
	if l, ok := r.(*io.LimitedReader); ok {
		r = l.R
	}
	_, ok := r.(*os.File)
	return ok
}

// begin is called when the answer begins: with its status, or with the first of its body.
func (o *outcome) begin(status int) {
	if o.status != 0 {
		return
	}
	o.status = status
	if o.look != nil {
		o.look.head(o.Header())
	}
	if o.flight != nil {
		o.flight.firstByte()
	}
}

// wrap returns a writer that can flush and be hijacked if the one below can: code that asks for http.Flusher or
// http.Hijacker must get the answer it would get without this package.
func (o *outcome) wrap() http.ResponseWriter {
	f, canFlush := o.ResponseWriter.(http.Flusher)
	j, canHijack := o.ResponseWriter.(http.Hijacker)
	switch {
	case canFlush && canHijack:
		return struct {
			*outcome
			flusher
			hijacker
		}{o, flusher{o, f}, hijacker{o, j}}
	case canFlush:
		return struct {
			*outcome
			flusher
		}{o, flusher{o, f}}
	case canHijack:
		return struct {
			*outcome
			hijacker
		}{o, hijacker{o, j}}
	default:
		return o
	}
}

type flusher struct {
	o     *outcome
	below http.Flusher
}

func (f flusher) Flush() {
	f.o.begin(http.StatusOK)
	f.o.flight.wait()
	defer f.o.flight.resume()
	f.below.Flush()
}

type hijacker struct {
	o     *outcome
	below http.Hijacker
}

func (j hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := j.below.Hijack()
	if err == nil {
		j.o.begin(http.StatusSwitchingProtocols)
	}
	return conn, buf, err
}
