package httplimit_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/memstore"
)

var failedLogins = httplimit.ChargeIf(func(status int) bool { return status == http.StatusUnauthorized })

// TestChargeIf checks the charge for each status under one rule and several, for all algorithms.
func TestChargeIf(t *testing.T) {
	outcomes := map[string]struct {
		handler http.HandlerFunc
		charged int64
	}{
		"401":     {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }, 1},
		"200":     {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200) }, 0},
		"nothing": {func(http.ResponseWriter, *http.Request) {}, 0},
		"body":    {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "x"); w.WriteHeader(401) }, 0},
		"copied": {func(w http.ResponseWriter, _ *http.Request) {
			io.Copy(w, io.LimitReader(strings.NewReader("x"), 1))
			w.WriteHeader(401)
		}, 0},
		"flushed":       {func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush(); w.WriteHeader(401) }, 0},
		"informational": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103); w.WriteHeader(401) }, 1},
		"twice":         {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401); w.WriteHeader(200) }, 1},
		"panic":         {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 0},
		"401 and panic": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401); panic(http.ErrAbortHandler) }, 1},
	}
	for _, a := range []sluice.Algorithm{
		sluice.TokenBucket, sluice.LeakyBucket, sluice.FixedWindow, sluice.SlidingWindowLog, sluice.SlidingWindowCounter,
	} {
		for name, o := range outcomes {
			for _, several := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v/%s/several=%v", a, name, several), func(t *testing.T) {
					rules := []*sluice.Rule{rule("logins", sluice.PerHour(10).WithAlgorithm(a))}
					if several {
						rules = append(rules, rule("day", sluice.PerDay(10).WithAlgorithm(a)))
					}
					l := limiter(newClock().store(), rules...)
					h := httplimit.Middleware(l, httplimit.ByIP(), failedLogins)(o.handler)
					func() {
						defer func() {
							if p := recover(); p != nil && p != http.ErrAbortHandler {
								t.Errorf("panic %v", p)
							}
						}()
						serve(h, request())
					}()
					d, err := l.Peek(t.Context(), "192.0.2.1")
					if err != nil || 10-d.Remaining != o.charged {
						t.Errorf("charged %d, %v; want %d", 10-d.Remaining, err, o.charged)
					}
				})
			}
		}
	}
}

// TestChargeIfConcurrent: requests in flight count, so that concurrent attempts are limited like consecutive ones.
func TestChargeIfConcurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inside, proceed := make(chan bool, 10), make(chan bool)
		l := limiter(memstore.New(), rule("logins", sluice.PerHour(3)))
		h := httplimit.Middleware(l, httplimit.ByIP(), failedLogins)(
			http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				inside <- true
				<-proceed
			}))
		statuses := make(chan int, 10)
		for range 10 {
			go func() { statuses <- serve(h, request()).StatusCode }()
		}
		synctest.Wait()
		if len(inside) != 3 || len(statuses) != 7 {
			t.Errorf("%d in flight and %d denied, want 3 and 7", len(inside), len(statuses))
		}
		close(proceed)
		synctest.Wait()
		if d, err := l.Peek(t.Context(), "192.0.2.1"); err != nil || d.Remaining != 3 {
			t.Errorf("remaining %d, %v after successes; want all 3", d.Remaining, err)
		}
	})
}

// TestChargeIfDegraded: usage granted by a fail mode was not charged at the store and is not refunded there.
func TestChargeIfDegraded(t *testing.T) {
	gaveBack := false
	store := storeFunc(func(takes []sluice.Take, _ []sluice.Decision) error {
		gaveBack = gaveBack || takes[0].Cost < 0
		return sluice.ErrUnavailable
	})
	for _, rules := range [][]*sluice.Rule{
		{rule("a", sluice.PerHour(3))},
		{rule("a", sluice.PerHour(3)), rule("b", sluice.PerDay(3))},
	} {
		h := httplimit.Middleware(limiter(store, rules...), httplimit.ByIP(), failedLogins)(ok)
		if got := serve(h, request()).StatusCode; got != 200 || gaveBack {
			t.Errorf("status %d, gave back: %v", got, gaveBack)
		}
	}
}

// TestChargeIfLate: a request whose client has disconnected is still refunded.
func TestChargeIfLate(t *testing.T) {
	l := limiter(newClock().store(), rule("logins", sluice.PerHour(3)))
	ctx, leave := context.WithCancel(t.Context())
	h := httplimit.Middleware(l, httplimit.ByIP(), failedLogins)(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { leave() }))
	serve(h, request().WithContext(ctx))
	if d, err := l.Peek(t.Context(), "192.0.2.1"); err != nil || d.Remaining != 3 {
		t.Errorf("remaining %d, %v; want all 3", d.Remaining, err)
	}
}

// plainWriter implements only http.ResponseWriter.
type plainWriter struct{ http.ResponseWriter }

type hijackWriter struct {
	http.ResponseWriter
	err error
}

func (w hijackWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, w.err }

// TestWriterAbilities: a handler sees exactly the optional interfaces of the server's writer.
func TestWriterAbilities(t *testing.T) {
	l := limiter(newClock().store(), rule("logins", sluice.PerHour(1000)))
	type flushHijacker struct {
		hijackWriter
		http.Flusher
	}
	rec := httptest.NewRecorder()
	for name, tt := range map[string]struct {
		w             http.ResponseWriter
		flush, hijack bool
	}{
		"plain":  {plainWriter{rec}, false, false},
		"flush":  {rec, true, false},
		"hijack": {hijackWriter{plainWriter{rec}, nil}, false, true},
		"both":   {flushHijacker{hijackWriter{rec, nil}, rec}, true, true},
	} {
		for _, opts := range [][]httplimit.Option{nil, {failedLogins}} {
			h := httplimit.Middleware(l, httplimit.ByIP(), opts...)(
				http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					_, flush := w.(http.Flusher)
					_, hijack := w.(http.Hijacker)
					if flush != tt.flush || hijack != tt.hijack {
						t.Errorf("%s: flush %v, hijack %v; want %v, %v", name, flush, hijack, tt.flush, tt.hijack)
					}
					c := http.NewResponseController(w)
					if err := c.Flush(); errors.Is(err, http.ErrNotSupported) == tt.flush {
						t.Errorf("%s: flush by controller: %v", name, err)
					}
					if _, _, err := c.Hijack(); errors.Is(err, http.ErrNotSupported) == tt.hijack {
						t.Errorf("%s: hijack by controller: %v", name, err)
					}
				}))
			h.ServeHTTP(tt.w, request())
		}
	}
}

// TestHijackOutcome: a hijacked connection counts as 101, a failed Hijack does not.
func TestHijackOutcome(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want int
	}{{nil, 101}, {errors.New("no"), 200}} {
		got := 0
		charge := httplimit.ChargeIf(func(status int) bool { got = status; return true })
		h := httplimit.Middleware(limiter(newClock().store(), rule("ws", sluice.PerHour(9))), httplimit.ByIP(), charge)(
			http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _, _ = w.(http.Hijacker).Hijack()
			}))
		h.ServeHTTP(hijackWriter{httptest.NewRecorder(), tt.err}, request())
		if got != tt.want {
			t.Errorf("status %d, want %d", got, tt.want)
		}
	}
}
