package gateway

import (
	"bufio"
	"net"
	"net/http"
	"time"

	"github.com/sluiceproject/sluice/internal/problem"
)

// responseWriter is the response writer of all handlers. It records the status and the size. The upstream gives up on
// clients that do not take it.
type responseWriter struct {
	http.ResponseWriter
	status         int
	bytes          int64
	startedAt      time.Time // when the status was written
	timeout        *timeout  // until it begins
	hijacked       bool
	isGRPC         bool  // of gRPC
	pendingProblem bool  // a problem whose gRPC status is not yet written
	grpcStatusSent bool  // a problem, as a gRPC status
	unreadBody     *body // of HTTP/1: it is not needed, and may not have arrived; nil: it has, or an upstream reads it
}

// Unwrap lets http.ResponseController find what else the writer can do.
func (a *responseWriter) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *responseWriter) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		if a.isGRPC && a.status == 0 && status >= 400 && a.Header().Get("Content-Type") == problem.MediaType {
			a.pendingProblem = true
		}
		a.begin(status)
		a.leaveBody()
	}
	if !a.pendingProblem {
		a.ResponseWriter.WriteHeader(status)
	}
}

// writeGRPCStatus answers a gRPC call with a gRPC status. The recorded status is that of HTTP, so that logs, metrics
// and rules that charge by status know calls and other requests alike.
func (a *responseWriter) writeGRPCStatus(problem []byte) {
	if a.pendingProblem {
		a.pendingProblem, a.grpcStatusSent = false, true
		setStatus(a.Header(), a.status, problem)
		a.ResponseWriter.WriteHeader(http.StatusOK)
	}
}

// leaveBody lets the response begin although the request's body has not arrived: net/http would wait for the rest of it
// first, unless the connection is closed afterwards.
func (a *responseWriter) leaveBody() {
	if b := a.unreadBody; b != nil {
		a.unreadBody = nil
		if !b.arrives(a.ResponseWriter) {
			a.Header().Set("Connection", "close")
		}
	}
}

func (a *responseWriter) begin(status int) {
	if a.status != 0 {
		return
	}
	a.status, a.startedAt = status, time.Now()
	a.timeout.stop()
}

func (a *responseWriter) Write(b []byte) (int, error) {
	a.begin(http.StatusOK)
	a.leaveBody()
	if a.writeGRPCStatus(b); a.grpcStatusSent {
		return len(b), nil
	}
	n, err := a.ResponseWriter.Write(b)
	a.bytes += int64(n)
	return n, err
}

// Flush is for who asks whether a writer can.
func (a *responseWriter) Flush() { _ = a.FlushError() }

// FlushError is for http.ResponseController.
func (a *responseWriter) FlushError() error {
	a.begin(http.StatusOK)
	if a.writeGRPCStatus(nil); a.grpcStatusSent {
		return nil // the answer ends with its head, or the client takes it for the beginning of a good one
	}
	return http.NewResponseController(a.ResponseWriter).Flush()
}

// Hijack hands over the connection, for a WebSocket.
func (a *responseWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := http.NewResponseController(a.ResponseWriter).Hijack()
	if err == nil {
		a.begin(http.StatusSwitchingProtocols)
		a.hijacked = true
	}
	return conn, buf, err
}

// start takes back what end has set for the answer before: a connection of HTTP/1 keeps it.
func (a *responseWriter) start(proto int) {
	if proto == 1 {
		_ = http.NewResponseController(a.ResponseWriter).SetWriteDeadline(time.Time{})
	}
}

// end bounds how long the server may take to send the last of it to a client that does not read.
func (a *responseWriter) end(idle time.Duration) {
	a.writeGRPCStatus(nil)
	if !a.hijacked && a.status != 0 {
		_ = http.NewResponseController(a.ResponseWriter).SetWriteDeadline(time.Now().Add(idle))
	}
}
