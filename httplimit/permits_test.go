package httplimit_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rules"
)

// flying keeps requests in flight and ends them one by one.
type flying struct {
	store sluice.Store
	h     http.Handler
	ends  chan func() // called by the handler before it returns
	began chan struct{}
	rules []rules.Rule
}

func newFlying(all ...rules.Rule) *flying {
	f := &flying{store: memstore.New(), ends: make(chan func()), began: make(chan struct{}, 100), rules: all}
	f.h = httplimit.RulesMiddleware(limiter(f.store), always(rules.Config{Rules: all}))(f.handler())
	return f
}

func (f *flying) handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.began <- struct{}{}
		if end := <-f.ends; end != nil {
			end()
		}
	})
}

// send sends a request and returns its response, or nil if it is in flight.
func (f *flying) send(user string) *httptest.ResponseRecorder {
	rec, done := httptest.NewRecorder(), make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = recover() }()
		f.h.ServeHTTP(rec, post("/", header("X-User", user)))
	}()
	select {
	case <-f.began:
		return nil
	case <-done:
		return rec
	}
}

// inFlight returns the number of permits that the store counts for the rule and key.
func inFlight(t *testing.T, store sluice.Store, r rules.Rule, key string) int64 {
	t.Helper()
	one := sluice.Must(sluice.New(store, r.Name, r.Limits[len(r.Limits)-1].Limit))
	d, err := one.Peek(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	return d.Limit - d.Remaining
}

var twoEach = perUser("flight", sluice.Concurrent(2))

func TestRulesInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFlying(twoEach)
		for range 2 {
			if rec := f.send("ada"); rec != nil {
				t.Fatal(rec.Code)
			}
		}
		<-time.After(10 * time.Minute) // they are renewed
		rec := f.send("ada")
		if rec == nil || rec.Code != 429 {
			t.Fatal("a third request is in flight")
		}
		for name, want := range map[string]string{
			"Retry-After": "1", "X-Ratelimit-Limit": "2", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "1",
			"Ratelimit-Policy": `"flight";q=2;qu="concurrent-requests"`, "Ratelimit": `"flight";r=0;t=1`,
		} {
			if got := rec.Header().Get(name); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		var problem struct {
			Detail       string
			RetryAfterMS int `json:"retry_after_ms"`
		}
		if err := json.Unmarshal(rec.Body.Bytes(), &problem); err != nil || problem.RetryAfterMS != 1000 ||
			problem.Detail != "Concurrency limit flight reached: too many requests in flight; retry in 1 s." {
			t.Errorf("%v, %s", err, rec.Body)
		}
		if rec := f.send("bob"); rec != nil {
			t.Errorf("another user: %d", rec.Code)
		}
		f.ends <- nil
		f.ends <- func() { panic("out of order") }
		f.ends <- func() { panic(http.ErrAbortHandler) }
		synctest.Wait()
		if n := inFlight(t, f.store, twoEach, "ada") + inFlight(t, f.store, twoEach, "bob"); n != 0 {
			t.Errorf("%d are in flight, want none", n)
		}
		if rec := f.send("ada"); rec != nil {
			t.Errorf("denied with %d though none is in flight", rec.Code)
		}
		f.ends <- nil
	})
}

// Permits are acquired together with all other limits or not at all, and one per request whatever its cost.
func TestRulesInFlightAndRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		both := perUser("both", sluice.PerHour(12), sluice.Concurrent(1))
		both.Cost = rules.Cost{Default: 4}
		both.ChargeStatus = rules.StatusRanges{{From: 200, To: 299}}
		f := newFlying(both)
		for range 2 {
			if rec := f.send("ada"); rec != nil {
				t.Fatal(rec.Code)
			}
			if rec := f.send("ada"); rec == nil || rec.Header().Get("X-Ratelimit-Limit") != "1" {
				t.Fatal("a second request is in flight")
			}
			f.ends <- nil
			synctest.Wait()
		}
		if rec := f.send("ada"); rec != nil {
			t.Fatal(rec.Code)
		}
		f.ends <- nil
		synctest.Wait()
		rec := f.send("ada")
		if rec == nil || rec.Header().Get("X-Ratelimit-Limit") != "12" || rec.Header().Get("Retry-After") != "1200" {
			t.Fatalf("16 of 12: %+v", rec)
		}
		if n := inFlight(t, f.store, rules.Rule{Name: "both#2", Limits: both.Limits}, "ada"); n != 0 {
			t.Errorf("%d are in flight, want none", n)
		}
	})
}

// A request that another rule delays holds no permit, whether its client disconnects or it is released.
func TestRulesInFlightWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := rules.Rule{Name: "queue", Limits: limits(sluice.Per(1, time.Minute).WithAlgorithm(sluice.LeakyQueue).WithBurst(5))}
		f := newFlying(slow, twoEach)
		if rec := f.send("ada"); rec != nil {
			t.Fatal(rec.Code)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			f.h.ServeHTTP(httptest.NewRecorder(), post("/", header("X-User", "ada")).WithContext(ctx))
		}()
		<-time.After(50 * time.Second) // it is delayed, and the first one's permit is renewed
		if n := inFlight(t, f.store, twoEach, "ada"); n != 1 {
			t.Errorf("%d are in flight while another waits, want 1", n)
		}
		cancel()
		<-done
		go f.h.ServeHTTP(httptest.NewRecorder(), post("/", header("X-User", "ada")))
		<-time.After(20 * time.Second) // the first minute is over
		if n := inFlight(t, f.store, twoEach, "ada"); n != 2 {
			t.Errorf("%d are in flight, want 2", n)
		}
		third := httptest.NewRecorder() // when it is released no permit is free
		f.h.ServeHTTP(third, post("/", header("X-User", "ada")))
		if n := inFlight(t, f.store, twoEach, "ada"); n != 2 || third.Code != 429 {
			t.Errorf("status %d, and %d are in flight; want 429 and 2", third.Code, n)
		}
		f.ends <- nil
		f.ends <- nil
	})
}

// ChargeAnyStatus skips concurrency limits.
func TestRulesInFlightElsewhere(t *testing.T) {
	both := perUser("both", sluice.PerHour(100), sluice.Concurrent(1))
	h := byRules(memstore.New(), rules.Config{Rules: []rules.Rule{both}}, httplimit.ChargeAnyStatus())
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, post("/", header("X-User", "ada")))
	if got := rec.Header().Get("Ratelimit-Policy"); got != `"both";q=100;w=3600` {
		t.Error(got)
	}
}

func TestMiddlewareInFlight(t *testing.T) {
	for name, opts := range map[string][]httplimit.Option{
		"alone":     nil,
		"costly":    {httplimit.Cost(func(*http.Request) int64 { return 7 })},
		"by status": {httplimit.ChargeIf(func(status int) bool { return status == 401 })},
		"by limit": {httplimit.LimitFor(func() func(*http.Request) *sluice.Limit {
			limit := sluice.Must(sluice.Concurrent(1).Build())
			return func(*http.Request) *sluice.Limit { return limit }
		}())},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &flying{ends: make(chan func()), began: make(chan struct{}, 10)}
				base := sluice.Concurrent(1)
				if name == "by limit" {
					base = sluice.PerHour(1000)
				}
				l := limiter(memstore.New(), rule("flight", base))
				f.h = httplimit.Middleware(l, httplimit.ByHeader("X-User"), opts...)(f.handler())
				for range 3 {
					if rec := f.send("ada"); rec != nil {
						t.Fatal(rec.Code)
					}
					if rec := f.send("ada"); rec == nil || rec.Code != 429 || rec.Header().Get("Retry-After") != "1" {
						t.Fatal("a second request is in flight")
					}
					f.ends <- nil
					synctest.Wait()
				}
			})
		})
	}
}

// A hijacked connection holds its permit until it is closed; a request whose client disconnects does not.
func TestServerInFlight(t *testing.T) {
	store := memstore.New()
	one := rules.Rule{Name: "flight", Limits: limits(sluice.Concurrent(1))}
	taken := make(chan net.Conn)
	var gone atomic.Bool
	url := server(t, httplimit.RulesMiddleware(limiter(store), always(rules.Config{Rules: []rules.Rule{one}}))(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Header.Get("X-Wait") != "":
				<-r.Context().Done()
				gone.Store(true)
				return
			case r.Header.Get("Upgrade") == "":
				return
			}
			if _, ok := w.(http.Flusher); !ok {
				t.Error("cannot flush any more")
			}
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
			}
			if _, ok := conn.(interface{ CloseWrite() error }); !ok {
				t.Error("cannot close for writing any more")
			}
			taken <- conn
		})))

	client, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	_, _ = io.WriteString(client, "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
	conn := <-taken // the handler has returned, or is about to
	for range 20 {
		if resp, _ := get(t, url); resp.StatusCode != 429 {
			t.Fatalf("status %d while a connection is in flight", resp.StatusCode)
		}
	}
	_, _ = conn.(io.ReaderFrom).ReadFrom(strings.NewReader("HTTP/1.1 101 Switching Protocols\r\n\r\n"))
	if line, err := bufio.NewReader(client).ReadString('\n'); err != nil || !strings.Contains(line, "101") {
		t.Errorf("%q, %v", line, err)
	}
	conn.Close()
	conn.Close()
	if n := inFlight(t, store, one, ""); n != 0 {
		t.Fatalf("%d in flight after the connection was closed", n)
	}

	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Wait", "yes")
	left := make(chan error)
	go func() {
		_, err := http.DefaultClient.Do(r)
		left <- err
	}()
	for inFlight(t, store, one, "") == 0 {
		<-time.After(time.Millisecond)
	}
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	for inFlight(t, store, one, "") != 0 { // the server notices the disconnect asynchronously
		<-time.After(time.Millisecond)
	}
	if !gone.Load() {
		t.Error("released before the handler returned")
	}
}
