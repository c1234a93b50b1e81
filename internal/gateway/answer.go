package gateway

import (
	"bufio"
	"net"
	"net/http"
	"time"
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
}

// Unwrap lets http.ResponseController find what else the writer can do.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *answer) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		a.begin(status)
	}
	a.ResponseWriter.WriteHeader(status)
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
	n, err := a.ResponseWriter.Write(b)
	a.bytes += int64(n)
	return n, err
}

// Flush is for who asks whether a writer can.
func (a *answer) Flush() { _ = a.FlushError() }

// FlushError is for http.ResponseController.
func (a *answer) FlushError() error {
	a.begin(http.StatusOK)
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
	if !a.hijacked && a.status != 0 {
		_ = http.NewResponseController(a.ResponseWriter).SetWriteDeadline(time.Now().Add(idle))
	}
}
