package upstream_test

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/upstream"
)

func named(n int) (servers []string) {
	for i := range n {
		servers = append(servers, fmt.Sprintf("http://s%d:80", i))
	}
	return servers
}

// chooser is a group whose requests fail at once, so that only who was chosen shows.
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

// Every server gets as much as it weighs, exactly, and nobody many requests in a row.
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

// Who is down gets nothing and the others share alike; when all are, all are used.
func TestDownIsSkipped(t *testing.T) {
	for _, balance := range []string{upstream.RoundRobin, upstream.LeastRequests, upstream.Hash} {
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

// Whoever is busy gets less: requests go where the fewest are in flight, for their weight.
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
	gw, g := gateway(t, upstream.Config{Servers: servers, Weights: []int{1, 1, 2}, LoadBalancing: upstream.LeastRequests})
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

// When a server leaves, its keys alone move; when it comes back, they return. Shares follow the weights.
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
				rt.Errorf("%s stays with who is down", key)
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

// Gateways agree, today and tomorrow: these owners must never change.
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

func TestConfigErrors(t *testing.T) {
	for want, cfg := range map[string]upstream.Config{
		"there is none":                  {},
		"write scheme://host:port":       {Servers: []string{"127.0.0.1:80"}},
		"begin with http://, https://":   {Servers: []string{"ftp://127.0.0.1:80"}},
		"and nothing else":               {Servers: []string{"http://a:80/path"}},
		"is there twice":                 {Servers: []string{"http://a", "http://a:80"}},
		`"fastest" is not known`:         {Servers: named(1), LoadBalancing: "fastest"},
		"hash needs hash_by":             {Servers: named(1), LoadBalancing: "hash"},
		"write one for each":             {Servers: named(2), Weights: []int{1}},
		"not between 1 and 100":          {Servers: named(1), Weights: []int{0}},
		"cert and key belong together":   {Servers: named(1), TLS: upstream.TLS{Cert: "x"}},
		"idle: -1s is negative":          {Servers: named(1), Timeouts: upstream.Timeouts{Idle: -1e9}},
		"does not begin with a slash":    {Servers: named(1), HealthCheck: &upstream.HealthCheck{Path: "healthz"}},
		"no such file":                   {Servers: []string{"https://a"}, TLS: upstream.TLS{CA: "missing.pem"}},
		"servers: \"http://[::1\" is no": {Servers: []string{"http://[::1"}},
	} {
		cfg.Name = "api"
		if _, err := upstream.New(cfg); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `upstream "api"`) {
			t.Errorf("%q: %v", want, err)
		}
	}
}
