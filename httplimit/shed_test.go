package httplimit_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rules"
)

func pathIs(patterns ...string) rules.Match {
	return rules.Match{Predicates: []rules.Predicate{{Ref: rules.Ref{Name: "path"}, Patterns: patterns}}}
}

// shedRules returns a rule set with an adaptive limit for all paths except /free, and a path for each priority.
func shedRules(t testing.TB, limits ...rules.AdaptiveLimit) *rules.Set {
	t.Helper()
	set, err := rules.New(rules.Config{
		Priorities: []rules.PriorityRule{
			{Match: pathIs("/critical", "/hold"), Priority: rules.PriorityCritical},
			{Match: pathIs("/high"), Priority: rules.PriorityHigh},
			{Match: pathIs("/low"), Priority: rules.PriorityLow},
			{Match: rules.Match{Predicates: []rules.Predicate{{Ref: rules.Ref{Name: "header:X-Plan"}, Values: []string{"pro"}}}}, Priority: rules.PriorityHigh},
		},
		AdaptiveLimits: limits,
	})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func adaptive(least, most int) rules.AdaptiveLimit {
	return rules.AdaptiveLimit{Name: "g", Match: pathIs("/critical", "/hold", "/high", "/normal", "/low", "/socket", "/events", "/stream"), Min: least, Max: most}
}

func theSet(set *rules.Set) func() *rules.Set { return func() *rules.Set { return set } }

func ask(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w
}

// hold keeps n requests in flight until release is called.
func hold(t *testing.T, n int, s *httplimit.Shedder) (release func()) {
	t.Helper()
	var inside, done sync.WaitGroup
	free := make(chan struct{})
	h := s.Middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		inside.Done()
		<-free
	}))
	for range n {
		inside.Add(1)
		done.Go(func() { ask(h, "/hold") })
	}
	inside.Wait()
	return func() {
		close(free)
		done.Wait()
	}
}

var served = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "served") })

func TestShedAnswer(t *testing.T) {
	s := httplimit.NewShedder(theSet(shedRules(t, adaptive(1, 4))))
	shed := ""
	s.OnShed(func(r *http.Request, limit string) { shed = limit + " " + r.URL.Path })
	h := s.Middleware(served)
	release := hold(t, 4, s)
	seen := map[string]bool{}
	for range 200 {
		w := ask(h, "/critical")
		after, err := strconv.Atoi(w.Header().Get("Retry-After"))
		if w.Code != 503 || err != nil || after < 1 || after > 5 || shed != "g /critical" {
			t.Fatalf("%d, Retry-After %q, shed %q", w.Code, w.Header().Get("Retry-After"), shed)
		}
		var p struct {
			Type, Title, Detail, Instance string
			Status                        int
			MS                            int64 `json:"retry_after_ms"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Header().Get("Content-Type") != "application/problem+json" {
			t.Fatal(err, w.Header())
		}
		if !strings.HasSuffix(p.Type, "#temporary-reduced-capacity") || p.Status != 503 || p.Instance != "/critical" || p.MS < 1000 || p.MS > 5000 || p.Detail == "" {
			t.Fatalf("%+v", p)
		}
		seen[w.Header().Get("Retry-After")] = true
	}
	if len(seen) < 3 {
		t.Errorf("all responses have the same Retry-After: %v", seen)
	}
	if w := ask(h, "/free"); w.Code != 200 {
		t.Errorf("status %d for a request that no adaptive limit matches", w.Code)
	}
	release()
	if w := ask(h, "/low"); w.Code != 200 || w.Body.String() != "served" {
		t.Errorf("afterwards: %d %s", w.Code, w.Body)
	}
	if g := s.AdaptiveLimits(); len(g) != 1 || g[0].InFlight != 0 || g[0].ShedByUpstream[rules.PriorityCritical-rules.PriorityLow] != 200 {
		t.Errorf("%+v", g)
	}
}

// Each priority is shed from another number of requests in flight on.
func TestShedByPriority(t *testing.T) {
	s := httplimit.NewShedder(theSet(shedRules(t, adaptive(1, 100))))
	h := s.Middleware(served)
	for _, c := range []struct {
		held int
		want string // low, normal, high, critical
	}{
		{30, "200 200 200 200"}, {55, "503 200 200 200"}, {80, "503 503 200 200"}, {100, "503 503 503 503"},
	} {
		release := hold(t, c.held, s)
		got := ""
		for _, path := range []string{"/low", "/normal", "/high", "/critical"} {
			got += fmt.Sprintf("%d ", ask(h, path).Code)
		}
		if strings.TrimSpace(got) != c.want {
			t.Errorf("%d in flight: %s, want %s", c.held, got, c.want)
		}
		release()
	}
}

func TestShedShadow(t *testing.T) {
	g := adaptive(1, 2)
	g.Shadow = true
	s := httplimit.NewShedder(theSet(shedRules(t, g)))
	release := hold(t, 4, s)
	if w := ask(s.Middleware(served), "/low"); w.Code != 200 {
		t.Errorf("in shadow: %d", w.Code)
	}
	if g := s.AdaptiveLimits()[0]; g.ShedByUpstream[0] != 1 || g.InFlight != 4 {
		t.Errorf("%+v", g)
	}
	release()
}

func TestShedRefusesWhatIsAmbiguous(t *testing.T) {
	s := httplimit.NewShedder(theSet(shedRules(t, adaptive(1, 4))))
	r := httptest.NewRequest("GET", "/normal", nil)
	r.Header["X-Plan"] = []string{"pro", "free"}
	w := httptest.NewRecorder()
	s.Middleware(served).ServeHTTP(w, r)
	if w.Code != 400 {
		t.Errorf("two plans: %d", w.Code)
	}
}

// However a handler ends, its request stops being in flight exactly once.
func TestShedLeaves(t *testing.T) {
	s := httplimit.NewShedder(theSet(shedRules(t, adaptive(1, 4))))
	for name, f := range map[string]http.HandlerFunc{
		"panics":       func(http.ResponseWriter, *http.Request) { panic("oops") },
		"panics late":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200); panic(http.ErrAbortHandler) },
		"says nothing": func(http.ResponseWriter, *http.Request) {},
		"fails":        func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) },
		"1xx first":    func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103); w.WriteHeader(204) },
		"sends events": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.(http.Flusher).Flush()
		},
	} {
		func() {
			defer func() { _ = recover() }()
			ask(s.Middleware(f), "/normal")
		}()
		if n := s.AdaptiveLimits()[0].InFlight; n != 0 {
			t.Errorf("%s: %d are in flight", name, n)
		}
	}
}

// Upgraded connections and event streams are in flight until the response starts, other requests until it ends. Over a
// real connection, because recorders cannot be hijacked.
func TestShedLongLived(t *testing.T) {
	s := httplimit.NewShedder(theSet(shedRules(t, adaptive(1, 4))))
	end, written := make(chan struct{}), make(chan struct{}, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("/socket", func(w http.ResponseWriter, _ *http.Request) {
		conn, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = buf.WriteString("HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n")
		_ = buf.Flush()
		written <- struct{}{}
		<-end
	})
	stream := func(kind string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			_, _ = io.WriteString(w, "data: 1\n\n")
			_ = http.NewResponseController(w).Flush()
			written <- struct{}{}
			<-end
		}
	}
	mux.HandleFunc("/events", stream("text/event-stream; charset=utf-8"))
	mux.HandleFunc("/stream", stream("text/plain"))
	server := httptest.NewServer(s.Middleware(mux))
	defer server.Close()
	defer close(end)
	for want, path := range []string{"/socket", "/events", "/stream"} {
		want /= 2 // only the last is in flight
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n", path)
		line, err := bufio.NewReader(conn).ReadString('\n')
		<-written // it is not in flight while it writes
		if n := s.AdaptiveLimits()[0].InFlight; err != nil || n != want {
			t.Errorf("%s: %q, %v, and %d in flight, want %d", path, line, err, n, want)
		}
	}
}

// slow is an upstream that serves cap(places) requests at a time in 20 ms each.
type slow struct {
	places chan struct{}
	status atomic.Int64
}

func (u *slow) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	u.places <- struct{}{}
	<-time.After(20 * time.Millisecond)
	<-u.places
	w.WriteHeader(int(u.status.Load()))
}

// load sends requests at a constant rate and counts the responses by path and status.
func load(h http.Handler, rate int, lasts time.Duration, paths ...string) map[string]int {
	var mu sync.Mutex
	var wait sync.WaitGroup
	got := map[string]int{}
	for i := range int(lasts.Seconds() * float64(rate)) {
		<-time.After(time.Second / time.Duration(rate))
		path := paths[i%len(paths)]
		wait.Go(func() {
			code := ask(h, path).Code
			mu.Lock()
			defer mu.Unlock()
			got[fmt.Sprintf("%s %d", path, code)]++
		})
	}
	wait.Wait()
	return got
}

// The middleware sheds an overload by priority, and the adaptive limit keeps its value when the rules change.
func TestShedOverload(t *testing.T) {
	t.Parallel()
	t.Run("measured by the handler", func(t *testing.T) { shedOverload(t, false) })
	t.Run("measured before the upstream", func(t *testing.T) { shedOverload(t, true) })
}

func shedOverload(t *testing.T, inner bool) {
	synctest.Test(t, func(t *testing.T) {
		var set atomic.Pointer[rules.Set]
		set.Store(shedRules(t, adaptive(5, 500)))
		s := httplimit.NewShedder(set.Load)
		up := &slow{places: make(chan struct{}, 10)} // 500 a second
		up.status.Store(200)
		h := s.Middleware(up)
		if inner {
			h = s.Middleware(s.MeasureUpstream(up))
		}
		if got := load(h, 250, 4*time.Second, "/low", "/normal"); got["/low 200"]+got["/normal 200"] != 1000 {
			t.Errorf("shed without overload: %v", got)
		}
		load(h, 2000, 3*time.Second, "/low", "/low", "/low", "/low", "/low", "/normal", "/critical", "/high")
		got := load(h, 2000, 5*time.Second, "/low", "/low", "/low", "/low", "/low", "/normal", "/critical", "/high")
		all := got["/low 200"] + got["/normal 200"] + got["/high 200"] + got["/critical 200"]
		if all < 2250 || got["/critical 503"] > 0 || got["/low 200"] > got["/low 503"]/5 || got["/high 503"] > got["/normal 503"] {
			t.Errorf("%d served: %v", all, got)
		}
		limit := s.AdaptiveLimits()[0].Limit
		g := adaptive(6, 400)
		other := adaptive(5, 300)
		other.Name = "other"
		set.Store(shedRules(t, other, g))
		if now := s.AdaptiveLimits(); limit > 100 || now[1].Limit != limit || now[0].Limit != 300 {
			t.Errorf("the limit was %d, and after a change of rules %+v", limit, now)
		}
	})
}

// Time before the upstream, and responses that do not come from it, do not count as overload.
func TestShedUpstream(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		before func(w http.ResponseWriter, n int64) bool // reports whether to call the upstream
	}{
		{"delayed", func(_ http.ResponseWriter, n int64) bool {
			if n > 1000 {
				<-time.After(300 * time.Millisecond)
			}
			return true
		}},
		{"rejected", func(w http.ResponseWriter, n int64) bool {
			if n > 1000 && n%2 == 0 {
				w.WriteHeader(503)
				return false
			}
			return true
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := httplimit.NewShedder(theSet(shedRules(t, adaptive(5, 500))))
				up := &slow{places: make(chan struct{}, 100)}
				up.status.Store(200)
				inner := s.MeasureUpstream(up)
				var n atomic.Int64
				h := s.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if c.before(w, n.Add(1)) {
						inner.ServeHTTP(struct{ wrapped }{wrapped{w}}, r)
					}
				}))
				load(h, 500, 8*time.Second, "/normal")
				if g := s.AdaptiveLimits()[0]; g.Limit != 500 || g.ShedByUpstream != [4]int64{} {
					t.Errorf("%+v", g)
				}
			})
		})
	}
}

// wrapped is a response writer of other middleware.
type wrapped struct{ http.ResponseWriter }

func (w wrapped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Pressure is measured while Run runs.
func TestShedRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := httplimit.NewShedder(theSet(shedRules(t, adaptive(1, 4))))
		ctx, stop := context.WithCancel(t.Context())
		var wait sync.WaitGroup
		wait.Go(func() { s.Run(ctx) })
		<-time.After(time.Second)
		if p := s.Pressure(); p < 0 || p > 1 {
			t.Errorf("pressure %v", p)
		}
		stop()
		wait.Wait()
	})
}

func TestShedWithoutGates(t *testing.T) {
	for _, set := range []*rules.Set{nil, shedRules(t)} {
		s := httplimit.NewShedder(theSet(set))
		if w := ask(s.Middleware(served), "/low"); w.Code != 200 || s.AdaptiveLimits() != nil {
			t.Errorf("%d", w.Code)
		}
	}
}

func BenchmarkShed(b *testing.B) {
	s := httplimit.NewShedder(theSet(shedRules(b, adaptive(10, 500))))
	h := s.Middleware(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }))
	r, w := httptest.NewRequest("GET", "/normal", nil), httptest.NewRecorder()
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(w, r)
	}
}

// Delayed requests are not in flight under the adaptive limit.
func TestShedDelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := httplimit.NewShedder(theSet(shedRules(t, adaptive(1, 4))))
		limiter := sluice.Must(sluice.New(memstore.New(), "one", sluice.PerSecond(1).WithAlgorithm(sluice.LeakyQueue).WithBurst(50)))
		limited := httplimit.Middleware(limiter, httplimit.KeyFunc(func(*http.Request) (string, error) { return "k", nil }))
		h := s.Middleware(limited(s.MeasureUpstream(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))))
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if w := ask(h, "/normal"); w.Code != http.StatusOK {
					t.Errorf("got %d", w.Code)
				}
			})
			synctest.Wait()
		}
		if n := s.AdaptiveLimits()[0].InFlight; n != 0 {
			t.Errorf("%d in flight while all are delayed", n)
		}
		all.Wait()
	})
}
