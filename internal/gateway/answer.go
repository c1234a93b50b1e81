package gateway

import (
	"bufio"
	"net"
	"net/http"
	"sync"
	"time"
)

// answer is the response writer that all of the line writes to. It remembers what was said, and gives up on clients that
// do not take it.
type answer struct {
	http.ResponseWriter
	status  int
	bytes   int64
	began   time.Time // when the status was written
	onBegin func()
	idle    time.Duration
	proto   int

	mu    sync.Mutex // guards the fields below
	stuck *time.Timer
	ended bool
}

func (a *answer) init(w http.ResponseWriter, idle time.Duration, proto int) {
	a.ResponseWriter, a.idle, a.proto = w, idle, proto
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
	if a.onBegin != nil {
		a.onBegin()
	}
}

func (a *answer) Write(b []byte) (int, error) {
	a.begin(http.StatusOK)
	a.watch()
	n, err := a.ResponseWriter.Write(b)
	a.rest()
	a.bytes += int64(n)
	return n, err
}

// Flush is for who asks whether a writer can.
func (a *answer) Flush() { _ = a.FlushError() }

func (a *answer) FlushError() error {
	a.begin(http.StatusOK)
	a.watch()
	err := http.NewResponseController(a.ResponseWriter).Flush()
	a.rest()
	return err
}

// Hijack hands over the connection, which then has no deadlines.
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := http.NewResponseController(a.ResponseWriter).Hijack()
	if err == nil {
		a.begin(http.StatusSwitchingProtocols)
		a.mu.Lock()
		a.ended = true
		a.mu.Unlock()
	}
	return conn, buf, err
}

// watch gives up on the client if what is being written is not taken in time. A deadline that is set before each piece
// would end an HTTP/2 stream also while there is nothing to write.
func (a *answer) watch() {
	if a.stuck == nil {
		a.stuck = time.AfterFunc(a.idle, a.giveUp)
	} else {
		a.stuck.Reset(a.idle)
	}
}

func (a *answer) rest() { a.stuck.Stop() }

func (a *answer) giveUp() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.ended { // afterwards the writer is no longer ours
		_ = http.NewResponseController(a.ResponseWriter).SetWriteDeadline(time.Now())
	}
}

// end bounds how long the server may take to send the last of it, and lets go of the writer.
func (a *answer) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.ended && (a.proto == 1 || a.bytes > 0) {
		_ = http.NewResponseController(a.ResponseWriter).SetWriteDeadline(time.Now().Add(a.idle))
	}
	a.ended = true
}
