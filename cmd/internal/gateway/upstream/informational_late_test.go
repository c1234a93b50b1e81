package upstream_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/upstream"
)

// finishedWriter counts calls after its handler has returned. net/http panics on some of them, and others affect a connection that
// already serves another request.
type finishedWriter struct {
	header   http.Header
	statuses []int
	finished atomic.Bool
	late     atomic.Int64
}

func (w *finishedWriter) check() {
	if w.finished.Load() {
		w.late.Add(1)
	}
}
func (w *finishedWriter) Header() http.Header              { w.check(); return w.header }
func (w *finishedWriter) WriteHeader(status int)           { w.check(); w.statuses = append(w.statuses, status) }
func (w *finishedWriter) Write(b []byte) (int, error)      { w.check(); return len(b), nil }
func (w *finishedWriter) FlushError() error                { w.check(); return nil }
func (w *finishedWriter) SetReadDeadline(time.Time) error  { w.check(); return nil }
func (w *finishedWriter) SetWriteDeadline(time.Time) error { w.check(); return nil }
func (w *finishedWriter) EnableFullDuplex() error          { w.check(); return nil }

// lateConn is a connection to a server whose bytes arrive when arrive is closed, even after the connection was closed, like bytes
// that another goroutine is just reading.
type lateConn struct {
	net.Conn
	arrive chan struct{}
	bytes  []byte
}

func (c *lateConn) Read(p []byte) (int, error) {
	<-c.arrive
	n := copy(p, c.bytes)
	c.bytes = c.bytes[n:]
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}
func (c *lateConn) Write(b []byte) (int, error) { return len(b), nil }
func (c *lateConn) Close() error                { return nil }
func (c *lateConn) SetDeadline(time.Time) error { return nil }

// A client disconnects; informational responses of the server arrive after the handler has returned.
func TestLateInformational(t *testing.T) {
	for _, status := range []string{"102 Processing", "103 Early Hints"} {
		synctest.Test(t, func(t *testing.T) {
			conn := &lateConn{arrive: make(chan struct{}), bytes: []byte("HTTP/1.1 " + status + "\r\nLink: </a>\r\n\r\n")}
			g, err := upstream.New(upstream.Config{Servers: []string{"http://a:80"}}.WithoutPool().WithDial(
				func(context.Context, string, string) (net.Conn, error) { return conn, nil }))
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			ctx, leave := context.WithCancel(t.Context())
			w := &finishedWriter{header: http.Header{}}
			done := make(chan struct{})
			go func() {
				defer close(done)
				g.ServeHTTP(w, request(t, "GET", "http://gw/", "").WithContext(ctx))
				w.finished.Store(true)
			}()
			synctest.Wait()
			leave()
			<-done
			close(conn.arrive)
			synctest.Wait()
			if n := w.late.Load(); n != 0 || len(w.statuses) != 1 || w.statuses[0] != 499 {
				t.Errorf("%s: %d calls after the handler returned; statuses %v", status, n, w.statuses)
			}
		})
	}
}
