package server

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// Deadlines of a lazy connection are those of any other.
func TestDeadlines(t *testing.T) {
	kinds := map[string]func(net.Conn) net.Conn{
		"plain": func(c net.Conn) net.Conn { return c },
		"lazy":  func(c net.Conn) net.Conn { return &lazyConn{Conn: c} },
	}
	type step struct {
		at, deadline time.Duration // 0: none; negative: long ago
	}
	past := time.Duration(-1)
	for name, c := range map[string]struct {
		steps []step
		want  time.Duration // when a read and a write end; 0: not before the other side comes, after a minute
	}{
		"none":                {},
		"one":                 {[]step{{0, time.Second}}, time.Second},
		"put off":             {[]step{{0, time.Second}, {0, 10 * time.Second}}, 10 * time.Second},
		"put off twice":       {[]step{{0, time.Second}, {0, 10 * time.Second}, {5 * time.Second, 20 * time.Second}}, 25 * time.Second},
		"put off in time":     {[]step{{0, time.Second}, {500 * time.Millisecond, time.Second}}, 1500 * time.Millisecond},
		"taken back":          {[]step{{0, time.Second}, {0, 0}}, 0},
		"taken back in time":  {[]step{{0, time.Second}, {500 * time.Millisecond, 0}}, 0},
		"sooner":              {[]step{{0, 10 * time.Second}, {0, time.Second}}, time.Second},
		"sooner while waited": {[]step{{0, 10 * time.Second}, {time.Second, time.Second}}, 2 * time.Second},
		"woken":               {[]step{{0, 10 * time.Second}, {time.Second, past}}, time.Second},
		"woken from nothing":  {[]step{{time.Second, past}}, time.Second},
		"woken before":        {[]step{{0, past}, {0, 0}}, 0},
		"woken and again":     {[]step{{0, past}, {0, 0}, {0, time.Second}, {0, 0}, {0, 3 * time.Second}}, 3 * time.Second},
		"again and again":     {[]step{{0, 60 * time.Second}, {0, 0}, {0, 10 * time.Second}, {0, 0}, {time.Second, 20 * time.Second}}, 21 * time.Second},
	} {
		for kind, wrap := range kinds {
			synctest.Test(t, func(t *testing.T) {
				a, b := net.Pipe()
				conn, start := wrap(a), time.Now()
				set := func(s step) {
					var at time.Time
					switch {
					case s.deadline < 0:
						at = time.Unix(1, 0)
					case s.deadline > 0:
						at = time.Now().Add(s.deadline)
					}
					if err := conn.SetDeadline(at); err != nil {
						t.Errorf("%s: %s: %v", name, kind, err)
					}
				}
				var later []step
				for _, s := range c.steps {
					if s.at == 0 {
						set(s)
					} else {
						later = append(later, s)
					}
				}
				for _, s := range later {
					time.AfterFunc(s.at, func() { set(s) })
				}
				time.AfterFunc(time.Minute, func() {
					_, _ = b.Write([]byte("0123456789"))
					_, _ = io.CopyN(io.Discard, b, 10)
				})
				ended := make(chan struct{})
				check := func(n int, err error) {
					took := time.Since(start)
					switch {
					case c.want == 0 && (err != nil || n != 10 || took != time.Minute):
						t.Errorf("%s: %s: %d bytes and %v after %v", name, kind, n, err, took)
					case c.want > 0 && (!errors.Is(err, os.ErrDeadlineExceeded) || n != 0 || took != c.want):
						t.Errorf("%s: %s: %d bytes and %v after %v, want a timeout after %v", name, kind, n, err, took, c.want)
					}
				}
				go func() {
					defer close(ended)
					check(conn.Read(make([]byte, 10)))
				}()
				check(conn.Write(make([]byte, 10)))
				<-ended
				synctest.Wait()
				a.Close()
				b.Close()
			})
		}
	}
}

// What was written before a deadline that has been put off is not written again.
func TestDeadlineOfHalfAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		conn := &lazyConn{Conn: a}
		_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
		_ = conn.SetWriteDeadline(time.Now().Add(time.Minute))
		got := make(chan string)
		go func() {
			first := make([]byte, 4)
			_, _ = io.ReadFull(b, first)
			<-time.After(10 * time.Second)
			rest, _ := io.ReadAll(b)
			got <- string(first) + string(rest)
		}()
		n, err := conn.Write([]byte("0123456789"))
		conn.Close()
		if text := <-got; n != 10 || err != nil || text != "0123456789" {
			t.Errorf("wrote %d bytes and %v: %q", n, err, text)
		}
	})
}
