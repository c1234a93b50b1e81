package upstream_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/upstream"
	"github.com/sluiceproject/sluice/internal/bounds"
)

// Clients do not read the responses of an HTTP/2 server: the number of waiting responses is bounded, the one that has waited
// longest is aborted for another, and they do not block other requests on the shared connection.
func TestSlowReaders(t *testing.T) {
	const most, slow = 2, 5
	var running atomic.Int64
	begun, ended := make(chan struct{}, slow), make(chan string, slow)
	var conns sync.Map
	at := origin(t, func(w http.ResponseWriter, r *http.Request) {
		conns.Store(r.RemoteAddr, true)
		if r.URL.Path == "/honest" {
			_, _ = io.WriteString(w, strings.Repeat("x", 4<<20))
			return
		}
		running.Add(1)
		begun <- struct{}{}
		for piece := make([]byte, 64<<10); ; {
			if _, err := w.Write(piece); err != nil {
				running.Add(-1)
				ended <- r.URL.Path
				return
			}
		}
	})
	cfg := upstream.Config{Servers: []string{strings.Replace(at, "http://", "h2c://", 1)}, Timeouts: upstream.Timeouts{Idle: time.Hour}}
	gw, g := gateway(t, cfg.WithSlow(most))
	reached := bounds.SlowResponses.Count()
	var open []net.Conn
	for range slow {
		conn, err := net.Dial("tcp", gw.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, conn)
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		<-begun
		if got := get(t, gw.URL+"/honest"); got.status != 200 || len(got.body) != 4<<20 || got.err != nil {
			t.Errorf("%d with %d bytes: %v", got.status, len(got.body), got.err)
		}
	}
	for range slow - most {
		<-ended
	}
	if n := bounds.SlowResponses.Count() - reached; n < slow-most {
		t.Errorf("the bound was reached %d times, want at least %d", n, slow-most)
	}
	n := 0
	conns.Range(func(any, any) bool { n++; return true })
	if got := running.Load(); got > most || n != 1 {
		t.Errorf("%d responses in progress, want at most %d; %d connections", got, most, n)
	}
	// The newest response was not aborted: its client can read on.
	last := bufio.NewReader(open[slow-1])
	if _, err := io.CopyN(io.Discard, last, 16<<20); err != nil {
		t.Errorf("the last: %v", err)
	}
	for _, conn := range open {
		conn.Close()
	}
	for range most {
		<-ended
	}
	if st := g.Status()[0]; st.Failures != 0 || st.Ejections != 0 {
		t.Errorf("%+v", st)
	}
}
