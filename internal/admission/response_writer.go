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

// refundable holds the refundable charges of a request. The zero refundable holds none.
type refundable struct {
	reservation *sluice.Reservation
	limiter     *sluice.Limiter
	takes       []sluice.Take
}

// newRefundable returns the refundable charges of takes.
func newRefundable(limiter *sluice.Limiter, takes []sluice.Take, ds []sluice.Decision) refundable {
	h := refundable{limiter: limiter}
	for i := range takes {
		if takes[i].EffectiveLimit().Algorithm == sluice.Concurrency { // permits are released separately
			continue
		}
		if back, ok := takes[i].Settlement(&ds[i], 0); ok {
			h.takes = append(h.takes, back)
		}
	}
	return h
}

// refundTimeout bounds the time that an unavailable store delays a finished request.
const refundTimeout = time.Second

// refund refunds the charges. It ignores the cancellation of ctx, because the request may have ended. If the store is
// unavailable, the limiter sends the refund on recovery.
func (h *refundable) refund(ctx context.Context) {
	if h.reservation == nil && len(h.takes) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refundTimeout)
	defer cancel()
	if h.reservation != nil {
		_ = h.reservation.Cancel(ctx)
		return
	}
	_ = h.limiter.Settle(ctx, h.takes)
}

// serveOutcome serves the request and calls ended with its final status. The reader, if not nil, reads the actual cost from
// the response.
func serveOutcome(next http.Handler, w http.ResponseWriter, r *http.Request, l *costReader, ended func(status int)) {
	o := &responseWriter{ResponseWriter: w, reader: l}
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

// responseWriter is a response writer that records the status.
type responseWriter struct {
	http.ResponseWriter
	status int
	reader *costReader // nil: the actual cost is not read
	ticket *shedTicket // nil: no adaptive limit applies
}

// Unwrap returns the wrapped writer, for http.ResponseController.
func (o *responseWriter) Unwrap() http.ResponseWriter { return o.ResponseWriter }

func (o *responseWriter) WriteHeader(status int) {
	final := status >= 200 || status == http.StatusSwitchingProtocols
	if final {
		o.begin(status)
	}
	o.ResponseWriter.WriteHeader(status)
}

func (o *responseWriter) Write(b []byte) (int, error) {
	o.begin(http.StatusOK)
	o.ticket.wait()
	n, err := o.ResponseWriter.Write(b)
	o.ticket.resume()
	if o.reader != nil && o.reader.body != nil {
		o.reader.body(b[:n])
	}
	return n, err
}

// ReadFrom preserves the io.ReaderFrom of the writer, which uses sendfile, unless the body is read for the actual cost.
func (o *responseWriter) ReadFrom(r io.Reader) (int64, error) {
	o.begin(http.StatusOK)
	if o.reader != nil && o.reader.body != nil {
		return io.Copy(struct{ io.Writer }{o}, r)
	}
	if o.ticket == nil {
		return io.Copy(o.ResponseWriter, r)
	}
	o.ticket.wait()
	defer o.ticket.resume()
	if !isFile(r) {
		r = &upstreamBody{r, o.ticket}
	}
	return io.Copy(o.ResponseWriter, r)
}

// isFile reports whether a reader is a file. Copying a file waits only for the client.
func isFile(r io.Reader) bool {
	if l, ok := r.(*io.LimitedReader); ok {
		r = l.R
	}
	_, ok := r.(*os.File)
	return ok
}

// begin records the start of the response: its status, or the first part of its body.
func (o *responseWriter) begin(status int) {
	if o.status != 0 {
		return
	}
	o.status = status
	if o.reader != nil {
		o.reader.head(o.Header())
	}
	if o.ticket != nil {
		o.ticket.firstByte()
	}
}

// wrap returns a writer that implements http.Flusher and http.Hijacker exactly if the wrapped one does, so that type
// assertions of handlers have the same result as without this package.
func (o *responseWriter) wrap() http.ResponseWriter {
	f, canFlush := o.ResponseWriter.(http.Flusher)
	j, canHijack := o.ResponseWriter.(http.Hijacker)
	switch {
	case canFlush && canHijack:
		return struct {
			*responseWriter
			flusher
			hijacker
		}{o, flusher{o, f}, hijacker{o, j}}
	case canFlush:
		return struct {
			*responseWriter
			flusher
		}{o, flusher{o, f}}
	case canHijack:
		return struct {
			*responseWriter
			hijacker
		}{o, hijacker{o, j}}
	default:
		return o
	}
}

type flusher struct {
	o     *responseWriter
	below http.Flusher
}

func (f flusher) Flush() {
	f.o.begin(http.StatusOK)
	f.o.ticket.wait()
	defer f.o.ticket.resume()
	f.below.Flush()
}

type hijacker struct {
	o     *responseWriter
	below http.Hijacker
}

func (j hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := j.below.Hijack()
	if err == nil {
		j.o.begin(http.StatusSwitchingProtocols)
	}
	return conn, buf, err
}
