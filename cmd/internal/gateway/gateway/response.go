package gateway

import (
	"bufio"
	"net"
	"net/http"
	"time"

	"github.com/sluiceproject/sluice/internal/problem"
)

// answer is the response writer that all of the line writes to. It remembers what was said. Who forwards gives up on
// clients that do not take it.
type answer struct {
	http.ResponseWriter
	status   int
	bytes    int64
	began    time.Time // when the status was written
	timeout  *timeout  // until it begins
	hijacked bool
	call     bool  // of gRPC
	untold   bool  // a problem, until it is known what is to be said about it
	told     bool  // a problem, in gRPC's words
	unread   *body // of HTTP/1: it is not needed, and may not have arrived; nil: it has, or an upstream reads it
}

// Unwrap lets http.ResponseController find what else the writer can do.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *answer) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		if a.call && a.status == 0 && status >= 400 && a.Header().Get("Content-Type") == problem.MediaType {
			a.untold = true
		}
		a.begin(status)
		a.leaveBody()
	}
	if !a.untold {
		a.ResponseWriter.WriteHeader(status)
	}
}

// tell answers a gRPC call in its own words. What the answer is remembered by is the status of HTTP, so that logs, metrics
// and rules that charge by status know calls and other requests alike.
func (a *answer) tell(problem []byte) {
	if a.untold {
		a.untold, a.told = false, true
		setStatus(a.Header(), a.status, problem)
		a.ResponseWriter.WriteHeader(http.StatusOK)
	}
}

// leaveBody lets the response begin although the request's body has not arrived: net/http would wait for the rest of it
// first, unless the connection is closed afterwards.
func (a *answer) leaveBody() {
	if b := a.unread; b != nil {
		a.unread = nil
		if !b.arrives(a.ResponseWriter) {
			a.Header().Set("Connection", "close")
		}
	}
}

func (a *answer) begin(status int) {
	if a.status != 0 {
		return
	}
	a.status, a.began = status, time.Now()
	a.timeout.stop()
}

func (a *answer) Write(b []byte) (int, error) {
	a.begin(http.StatusOK)
	a.leaveBody()
	if a.tell(b); a.told {
		return len(b), nil
	}
	n, err := a.ResponseWriter.Write(b)
	a.bytes += int64(n)
	return n, err
}

// Flush is for who asks whether a writer can.
func (a *answer) Flush() { _ = a.FlushError() }

// FlushError is for http.ResponseController.
func (a *answer) FlushError() error {
	a.begin(http.StatusOK)
	if a.tell(nil); a.told {
		return nil // the answer ends with its head, or the client takes it for the beginning of a good one
	}
	return http.NewResponseController(a.ResponseWriter).Flush()
}

// Hijack hands over the connection, for a WebSocket.
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := http.NewResponseController(a.ResponseWriter).Hijack()
	if err == nil {
		a.begin(http.StatusSwitchingProtocols)
		a.hijacked = true
	}
	return conn, buf, err
}

// start takes back what end has set for the answer before: a connection of HTTP/1 keeps it.
func (a *answer) start(proto int) {
	if proto == 1 {
		_ = http.NewResponseController(a.ResponseWriter).SetWriteDeadline(time.Time{})
	}
}

// end bounds how long the server may take to send the last of it to a client that does not read.
func (a *answer) end(idle time.Duration) {
	a.tell(nil)
	if !a.hijacked && a.status != 0 {
		_ = http.NewResponseController(a.ResponseWriter).SetWriteDeadline(time.Now().Add(idle))
	}
}
