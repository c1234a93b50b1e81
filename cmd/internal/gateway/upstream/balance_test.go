package upstream_test

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/upstream"
)

func named(n int) (servers []string) {
	for i := range n {
		servers = append(servers, fmt.Sprintf("http://s%d:80", i))
	}
	return servers
}

// chooser returns a group whose requests fail at once, and a function that returns the server chosen for a key.
func chooser(t testing.TB, cfg upstream.Config) (g *upstream.Group, choose func(key string) string) {
	t.Helper()
	chosen := ""
	cfg.OnServerChosen = func(_ *http.Request, server string) { chosen = server }
	cfg.Retries, cfg.OutlierDetection.ConsecutiveFailures = -1, -1
	g, err := upstream.New(cfg.WithDial(new(memory).dial))
	if err != nil {
		t.Fatal(err)
	}
	return g, func(key string) string {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-Key", key)
		g.ServeHTTP(httptest.NewRecorder(), r)
		return chosen
	}
}

func byKey(r *http.Request) string { return r.Header.Get("X-Key") }

// Every server gets exactly the share of its weight, and none many requests in a row.
func TestRoundRobin(t *testing.T) {
	_, choose := chooser(t, upstream.Config{Servers: named(3), Weights: []int{5, 1, 2}})
	n, row, last := map[string]int{}, 0, ""
	for range 80 {
		s := choose("")
		if n[s]++; s == last {
			row++
		} else {
			row, last = 1, s
		}
		if row > 2 {
			t.Errorf("%s %d times in a row", s, row)
		}
	}
	if n["http://s0:80"] != 50 || n["http://s1:80"] != 10 || n["http://s2:80"] != 20 {
		t.Errorf("%v", n)
	}
}

// Unhealthy servers get no requests and the others equal shares; if all are unhealthy, all are used.
func TestDownIsSkipped(t *testing.T) {
	for _, balance := range []string{upstream.RoundRobin, upstream.LeastRequest, upstream.Hash} {
		g, choose := chooser(t, upstream.Config{Servers: named(4), LoadBalancing: balance, HashBy: byKey})
		count := func() map[string]int {
			n := map[string]int{}
			for i := range 1200 {
				n[choose(fmt.Sprint(i))]++
			}
			return n
		}
		g.SetDown(1, true)
		n := count()
		for s, c := range n {
			if s == "http://s1:80" || c < 300 || c > 500 {
				t.Errorf("%s: %v", balance, n)
			}
		}
		if st := g.Status(); st[1].State != upstream.StateDown || st[0].State != upstream.StateUp {
			t.Errorf("%+v", st)
		}
		for i := range 4 {
			g.SetDown(i, true)
		}
		if n := count(); len(n) != 4 {
			t.Errorf("%s, all down: %v", balance, n)
		}
		g.SetDown(2, false)
		if n := count(); len(n) != 1 || n["http://s2:80"] != 1200 {
			t.Errorf("%s, one up: %v", balance, n)
		}
	}
}

// Requests go to the server with the fewest requests in flight relative to its weight.
func TestLeastRequests(t *testing.T) {
	hold := make(chan struct{})
	var mu sync.Mutex
	held := map[string]int{}
	var servers []string
	came := make(chan struct{})
	for range 3 {
		var at string
		at = origin(t, func(w http.ResponseWriter, _ *http.Request) {
			mu.Lock()
			held[at]++
			mu.Unlock()
			came <- struct{}{}
			<-hold
		})
		servers = append(servers, at)
	}
	gw, g := gateway(t, upstream.Config{Servers: servers, Weights: []int{1, 1, 2}, LoadBalancing: upstream.LeastRequest})
	c := client(t)
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() { do(t, c, request(t, "GET", gw.URL, "")) })
		<-came
	}
	mu.Lock()
	if held[servers[0]] != 4 || held[servers[1]] != 4 || held[servers[2]] != 8 {
		t.Errorf("%v", held)
	}
	mu.Unlock()
	if st := g.Status(); st[2].InFlight != 8 {
		t.Errorf("%+v", st)
	}
	close(hold)
	all.Wait()
}

// When a server leaves, only its keys move; when it comes back, they return. Shares follow the weights.
func TestHash(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(2, 12).Draw(rt, "servers")
		var weights []int
		total := n
		if rapid.Bool().Draw(rt, "weighted") {
			total = 0
			for range n {
				weights = append(weights, rapid.IntRange(1, 5).Draw(rt, "weight"))
				total += weights[len(weights)-1]
			}
		}
		g, err := upstream.New(upstream.Config{Servers: named(n), Weights: weights, LoadBalancing: upstream.Hash, HashBy: byKey})
		if err != nil {
			rt.Fatal(err)
		}
		prefix := rapid.String().Draw(rt, "prefix")
		const keys = 2000
		before, shares := map[string]string{}, map[string]int{}
		for i := range keys {
			key := prefix + fmt.Sprint(i)
			before[key] = g.Owner(key)
			shares[before[key]]++
		}
		for i := range n {
			w := 1
			if weights != nil {
				w = weights[i]
			}
			p := float64(w) / float64(total)
			want := keys * p
			if got := float64(shares[fmt.Sprintf("http://s%d:80", i)]); math.Abs(got-want) > 6*math.Sqrt(want*(1-p))+1 {
				rt.Errorf("server %d of %v has %v keys, want about %v", i, weights, got, want)
			}
		}
		gone := rapid.IntRange(0, n-1).Draw(rt, "gone")
		g.SetDown(gone, true)
		for key, owner := range before {
			if now := g.Owner(key); owner != fmt.Sprintf("http://s%d:80", gone) && now != owner {
				rt.Errorf("%s moved from %s to %s", key, owner, now)
			} else if now == fmt.Sprintf("http://s%d:80", gone) {
				rt.Errorf("%s stays with an unhealthy server", key)
			}
		}
		g.SetDown(gone, false)
		for key, owner := range before {
			if now := g.Owner(key); now != owner {
				rt.Errorf("%s did not return from %s to %s", key, now, owner)
			}
		}
	})
}

// All gateways and versions choose the same server for a key: these owners must never change.
func TestHashIsStable(t *testing.T) {
	_, choose := chooser(t, upstream.Config{Servers: named(5), LoadBalancing: upstream.Hash, HashBy: byKey})
	var got strings.Builder
	for i := range 12 {
		_, _ = io.WriteString(&got, strings.TrimSuffix(strings.TrimPrefix(choose(fmt.Sprint("user-", i)), "http://s"), ":80"))
	}
	if want := "310123232344"; got.String() != want {
		t.Errorf("%s, want %s", got.String(), want)
	}
}

// A failing server is ejected, longer each time, and one failure after an ejection is enough for the next. At most 50 % of a
// group is ejected.
func TestOutlierDetection(t *testing.T) {
	bubbleWays(t, func(t *testing.T, way func(upstream.Config) upstream.Config) {
		var fails atomic.Bool
		fails.Store(true)
		bad := func(w http.ResponseWriter, _ *http.Request) {
			if fails.Load() {
				panic(http.ErrAbortHandler)
			}
			_, _ = io.WriteString(w, "a")
		}
		good := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "b") }
		cfg := way(upstream.Config{Servers: []string{"http://a:80", "http://b:80"}, OutlierDetection: upstream.OutlierDetection{ConsecutiveFailures: 3, EjectionTime: 10 * time.Second}, Retries: -1})
		inBubble(t, cfg, map[string]http.HandlerFunc{"a:80": bad, "b:80": good}, func(t *testing.T, m *memory, g *upstream.Group) {
			c := m.client()
			defer c.CloseIdleConnections()
			round := func(n int) (failed int) {
				for range n {
					if do(t, c, request(t, "GET", "http://gw:80/", "")).status == 502 {
						failed++
					}
				}
				return failed
			}
			if n := round(5); n != 2 && n != 3 {
				t.Errorf("%d of 5 failed", n)
			}
			if n := round(10); n > 1 {
				t.Errorf("%d failed while the server should be ejected", n)
			}
			s := g.Status()[0]
			if s.State != upstream.StateEjected || s.Failures != 3 || s.Ejections != 1 || s.EjectedFor != 10*time.Second {
				t.Errorf("%+v", s)
			}
			for i, ejectedFor := range []time.Duration{20 * time.Second, 40 * time.Second} {
				<-time.After(ejectedFor / 2)
				if n := round(10); n != 1 { // on probation
					t.Errorf("%d failed after ejection %d", n, i)
				}
				if s := g.Status()[0]; s.EjectedFor != ejectedFor || s.Ejections != int64(i)+2 {
					t.Errorf("%+v", s)
				}
			}
			fails.Store(false)
			<-time.After(40 * time.Second)
			if n := round(10); n != 0 || g.Status()[0].State != upstream.StateUp {
				t.Errorf("%d failed, %+v", n, g.Status()[0])
			}
			fails.Store(true)
			if n := round(4); n != 2 { // after a success one failure is no longer enough
				t.Errorf("%d failed", n)
			}
			<-time.After(200 * time.Second) // not ejected for long: the ejection time is reset
			round(2)
			if s := g.Status()[0]; s.EjectedFor != 10*time.Second {
				t.Errorf("%+v", s)
			}
		})
	})
}

func TestEjectsAtMostHalf(t *testing.T) {
	bad := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	for n, most := range map[int]int{1: 0, 2: 1, 3: 1, 4: 2} {
		servers := named(n)
		handlers := map[string]http.HandlerFunc{}
		for _, s := range servers {
			handlers[s[len("http://"):]] = bad
		}
		cfg := upstream.Config{Servers: servers, OutlierDetection: upstream.OutlierDetection{ConsecutiveFailures: 1}, Retries: -1}
		inBubble(t, cfg, handlers, func(t *testing.T, m *memory, g *upstream.Group) {
			for range 10 * n {
				ask(t, m, request(t, "GET", "http://gw:80/", ""))
			}
			ejected := 0
			for _, s := range g.Status() {
				if s.State == upstream.StateEjected {
					ejected++
				}
			}
			if ejected != most {
				t.Errorf("%d of %d rest", ejected, n)
			}
		})
	}
}

func TestConfigErrors(t *testing.T) {
	for want, cfg := range map[string]upstream.Config{
		"servers: is empty":                      {},
		"use scheme://host:port":                 {Servers: []string{"127.0.0.1:80"}},
		"is not http, https or h2c":              {Servers: []string{"ftp://127.0.0.1:80"}},
		"scheme://host:port only":                {Servers: []string{"http://a:80/path"}},
		"is listed twice":                        {Servers: []string{"http://a", "http://a:80"}},
		`"fastest" is not known`:                 {Servers: named(1), LoadBalancing: "fastest"},
		"hash needs hash_by":                     {Servers: named(1), LoadBalancing: "hash"},
		"set one for each":                       {Servers: named(2), Weights: []int{1}},
		"not between 1 and 100":                  {Servers: named(1), Weights: []int{0}},
		"cert_file and key_file belong together": {Servers: named(1), TLS: upstream.TLS{Cert: "x"}},
		"idle: -1s is negative":                  {Servers: named(1), Timeouts: upstream.Timeouts{Idle: -1e9}},
		"does not begin with a slash":            {Servers: named(1), HealthCheck: &upstream.HealthCheck{Path: "healthz"}},
		"no such file":                           {Servers: []string{"https://a"}, TLS: upstream.TLS{CA: "missing.pem"}},
		`"http://[::1" is not a URL`:             {Servers: []string{"http://[::1"}},
	} {
		cfg.Name = "api"
		if _, err := upstream.New(cfg); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `upstream "api"`) {
			t.Errorf("%q: %v", want, err)
		}
	}
}
