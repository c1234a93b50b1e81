package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/gateway"
	"github.com/sluiceproject/sluice/cmd/internal/gateway/queue"
)

const keeping = `
deny: [{path: /internal}]
rules:
  - {name: once, match: {path: /once}, limit: 1/h, on_limit: queue, queue: {max_attempts: 3, expires_after: 2h, result_ttl: 5m, order: key}}
  - {name: users, match: {path: /users}, per: attr:user, limit: 1/h, on_limit: queue}
`

// newQueue returns an embedded queue without deliveries.
func newQueue(t *testing.T, change func(*queue.Config)) *queue.Queue {
	t.Helper()
	cfg := queue.Config{Directory: t.TempDir()}
	change(&cfg)
	q, err := queue.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
	return q
}

// A request that cannot be stored gets no 202.
func TestEnqueue(t *testing.T) {
	q := newQueue(t, func(c *queue.Config) { c.MaxCount, c.MaxItem = 2, 4096 })
	var asked atomic.Int64
	address := before(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { asked.Add(1) }), func(c *gateway.Config) {
		c.Rules, c.Limiter = limits(t, keeping)
		c.Queue, c.InternalHandler = q, q.Handler()
		c.Routes[0].MaxBody = 10_000
	})
	post := func(body string, lines ...string) answer {
		return raw(t, address, fmt.Sprintf("POST /once HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n%s\r\n%s",
			len(body), strings.Join(append(lines, ""), "\r\n"), body))
	}
	if a := post("first"); a.status != 200 {
		t.Fatalf("%+v", a)
	}
	for range 2 {
		if a := post("kept"); a.status != 202 || a.header.Get("Location") == "" || a.header.Get("Retry-After") != "3600" || a.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%+v", a)
		} else if a := get(t, address, a.header.Get("Location")); a.status != 200 || !strings.Contains(a.body, `"state":"queued"`) {
			t.Errorf("%+v", a)
		}
	}
	a := post("one more than the maximum")
	a.isProblem(t, http.StatusServiceUnavailable)
	if a.header.Get("Retry-After") == "" || a.header.Get("Location") != "" {
		t.Errorf("%+v", a)
	}
	post(strings.Repeat("x", 5000)).isProblem(t, http.StatusRequestEntityTooLarge)
	raw(t, address, fmt.Sprintf("POST /once HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n",
		20_000, strings.Repeat("x", 20_000))).isProblem(t, http.StatusRequestEntityTooLarge)
	get(t, address, "/once", "Connection: Upgrade", "Upgrade: websocket").isProblem(t, http.StatusTooManyRequests)
	post("", "Content-Type: application/grpc+proto").isProblem(t, http.StatusTooManyRequests)
	if asked.Load() != 1 {
		t.Errorf("%d requests reached the upstream", asked.Load())
	}
}

// delivering is a gateway that delivers queued requests.
type delivering struct {
	*gateway.Gateway
	asked []string
	begun int
	fail  error // returned by begin
}

func newDelivering(t *testing.T, app http.HandlerFunc) *delivering {
	t.Helper()
	d := new(delivering)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		d.asked = append(d.asked, fmt.Sprintf("%s %s %s %s %s", r.Method, r.Host, r.RequestURI, r.Header.Get("X-A"), b))
		if app != nil {
			app(w, r)
		}
	}))
	t.Cleanup(s.Close)
	cfg := gateway.Config{Routes: []gateway.Route{{Path: pattern(t, "/{any}"), Upstream: group(t, s.URL)}}}
	cfg.Rules, cfg.Limiter = limits(t, keeping)
	cfg.Queue = newQueue(t, func(*queue.Config) {})
	var err error
	if d.Gateway, err = gateway.New(cfg); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *delivering) deliver(ctx context.Context, target string, attributes map[string]string) gateway.Delivered {
	return d.Deliver(ctx, &queue.Item{
		Method: "PUT", Scheme: "https", Host: "a.example", Target: target, RemoteAddr: "192.0.2.1:5", Header: http.Header{"X-A": {"b"}},
		Body: []byte("hello"), Attributes: attributes,
	}, func() error {
		d.begun++
		return d.fail
	})
}

// The current limits apply to a queued request. A denied delivery does not count as an attempt.
func TestDeliver(t *testing.T) {
	d := newDelivering(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Proto", r.Header.Get("X-Forwarded-Proto")+" "+r.Header.Get("X-Forwarded-For"))
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, "tea")
	})
	out := d.deliver(t.Context(), "/once?a=b", nil)
	if out.Status != http.StatusTeapot || string(out.Body) != "tea" || out.Header.Get("X-Proto") != "https 192.0.2.1" || d.begun != 1 ||
		strings.Join(d.asked, "") != "PUT a.example /once?a=b b hello" {
		t.Errorf("%+v, begun %d times; asked %q", out, d.begun, d.asked)
	}
	if out := d.deliver(t.Context(), "/once", nil); !out.Limited || out.After <= 0 || out.After > time.Hour || d.begun != 1 || len(d.asked) != 1 {
		t.Errorf("over the limit: %+v, claimed %d times", out, d.begun)
	}
	for _, user := range []string{"ada", "bob"} {
		if out := d.deliver(t.Context(), "/users", map[string]string{"user": user}); out.Status != http.StatusTeapot {
			t.Errorf("%s: %+v", user, out)
		}
		if out := d.deliver(t.Context(), "/users", map[string]string{"user": user}); !out.Limited {
			t.Errorf("%s again: %+v", user, out)
		}
	}
	begun, asked := d.begun, len(d.asked)
	for target, want := range map[string]int{"/no/route": 404, "/internal": 403, "/a%2fb": 400} {
		if out := d.deliver(t.Context(), target, nil); out.Status != want || out.Limited {
			t.Errorf("%s: %+v", target, out)
		}
	}
	if d.begun != begun+3 || len(d.asked) != asked {
		t.Errorf("%d claimed and %d forwarded", d.begun-begun, len(d.asked)-asked)
	}
	d.fail = errors.New("claimed by another")
	if out := d.deliver(t.Context(), "/free", nil); out.Status != 0 || out.Limited || len(d.asked) != asked {
		t.Errorf("claimed by another gateway: %+v", out)
	}
}

// A missing or truncated response is a failure. Of a long response only the start is stored.
func TestDeliverWithoutResponse(t *testing.T) {
	left, leave := context.WithCancel(t.Context())
	for name, tt := range map[string]struct {
		ctx    context.Context
		app    http.HandlerFunc
		status int
		size   int
	}{
		"truncated": {t.Context(), func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "10")
			_, _ = io.WriteString(w, "half")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, 0, 0},
		"ended": {left, func(http.ResponseWriter, *http.Request) { leave() }, 0, 0},
		"long": {t.Context(), func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, strings.Repeat("x", 10*queue.MaxResult))
		}, 200, queue.MaxResult + 1},
	} {
		t.Run(name, func(t *testing.T) {
			out := newDelivering(t, tt.app).deliver(tt.ctx, "/free", nil)
			if name == "ended" && out.Status == 200 { // the response was complete before the cancellation was noticed
				return
			}
			if out.Status != tt.status || (out.Err != nil) != (tt.status == 0) || len(out.Body) != tt.size || out.Limited {
				t.Errorf("%d, %v, %d bytes", out.Status, out.Err, len(out.Body))
			}
		})
	}
}

// A panic during a delivery counts as an attempt and does not stop the worker.
func TestDeliverPanic(t *testing.T) {
	var times atomic.Int64
	q := newQueue(t, func(c *queue.Config) { c.Delivers, c.MinBackoff = true, time.Millisecond })
	cfg := gateway.Config{Queue: q, Workers: 1, Log: slog.New(slog.DiscardHandler), Routes: []gateway.Route{{
		Path: pattern(t, "/{any}"),
		Upstream: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if times.Add(1) == 1 {
				panic("of the gateway")
			}
			w.WriteHeader(http.StatusOK)
		}),
	}}}
	cfg.Rules, cfg.Limiter = limits(t, keeping)
	g, err := gateway.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = q.Run(ctx) })
	running.Go(func() { g.Run(ctx) })
	defer running.Wait()
	defer stop()
	id, err := q.Put(ctx, queue.Item{Rule: "r", Method: "GET", Host: "a", Target: "/free", RemoteAddr: "192.0.2.1:5"})
	if err != nil {
		t.Fatal(err)
	}
	for tick := time.NewTicker(time.Millisecond); ; {
		if st, err := q.Get(ctx, id); err == nil && st.State == queue.Dead || err == nil && st.State == queue.Done {
			if times.Load() != 2 || st.Attempts != 2 {
				t.Errorf("asked %d times: %+v", times.Load(), st)
			}
			return
		}
		select {
		case <-tick.C:
		case <-time.After(time.Minute):
			t.Fatal("the item is not done")
		}
	}
}

// A 202 has quota headers like every response.
func TestQueuedResponseHeaders(t *testing.T) {
	q := newQueue(t, func(*queue.Config) {})
	address := before(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), func(c *gateway.Config) {
		c.Rules, c.Limiter = limits(t, `
rules:
  - {name: hour, match: {path: /two}, limit: 2/h, on_limit: queue}
  - {name: day, match: {path: /two}, limit: 9/day}
  - {name: order, match: {path: /order}, per: header:X-User, limit: 3/h, cost: {header: X-Cost}, on_limit: queue, queue: {order: key}}
`)
		c.Queue, c.InternalHandler = q, q.Handler()
	})
	type sent struct {
		path, cost string
		status     int
		remaining  string
		ratelimit  string // without t
	}
	for i, tt := range []sent{
		{"/two", "1", 200, "1", `"hour";r=1, "day";r=8`},
		{"/two", "1", 200, "0", `"hour";r=0, "day";r=7`},
		{"/two", "1", 202, "0", `"hour";r=0, "day";r=7`},
		{"/order", "2", 200, "1", `"order";r=1`},
		{"/order", "2", 202, "1", `"order";r=1`},
		{"/order", "1", 202, "1", `"order";r=1`}, // allowed, but queued behind another of its key and not charged
	} {
		a := get(t, address, tt.path, "X-User: ada", "X-Cost: "+tt.cost)
		h := a.header
		limit, policy := "2", `"hour";q=2;w=3600, "day";q=9;w=86400`
		if tt.path == "/order" {
			limit, policy = "3", `"order";q=3;w=3600`
		}
		got := regexp.MustCompile(`;t=\d+`).ReplaceAllString(h.Get("Ratelimit"), "")
		if a.status != tt.status || h.Get("X-Ratelimit-Limit") != limit || h.Get("X-Ratelimit-Remaining") != tt.remaining || h.Get("X-Ratelimit-Reset") == "" ||
			h.Get("Ratelimit-Policy") != policy || got != tt.ratelimit || (h.Get("Retry-After") != "") != (a.status == 202) || h.Get("X-Ratelimit-Retry-After") != "" {
			t.Errorf("request %d: %d, remaining %s, %s: %v", i, a.status, h.Get("X-Ratelimit-Remaining"), got, h)
		}
	}
}

// A 429 for a request that cannot be queued lists the rules that denied it in Ratelimit and in the body, like every 429. If no
// rule denied it, because it would only wait behind others of its key, there is no such list.
func TestNotQueuedResponseHeaders(t *testing.T) {
	q := newQueue(t, func(c *queue.Config) { c.MaxKeyCount = 1 })
	address := before(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), func(c *gateway.Config) {
		c.Rules, c.Limiter = limits(t, `
rules:
  - {name: all, limit: 1000/h}
  - {name: hour, match: {path: /two}, limit: 1/h, on_limit: queue}
  - {name: day, match: {path: /two}, limit: 1/day, on_limit: queue}
  - {name: order, match: {path: /order}, per: header:X-User, limit: 3/h, cost: {header: X-Cost}, on_limit: queue, queue: {order: key}}
`)
		c.Queue, c.InternalHandler = q, q.Handler()
	})
	for i, tt := range []struct {
		path, cost      string
		status          int
		ratelimit, body string // ratelimit without t
		more            []string
	}{
		{"/two", "1", 200, `"all";r=999, "hour";r=0, "day";r=0`, "", nil},
		{"/two", "1", 429, `"hour";r=0, "day";r=0`, `"violated-policies":["hour","day"]`, []string{"Connection: Upgrade", "Upgrade: websocket"}},
		{"/two", "1", 202, `"all";r=999, "hour";r=0, "day";r=0`, "", nil},
		{"/two", "1", 429, `"hour";r=0, "day";r=0`, `"violated-policies":["hour","day"]`, nil},
		{"/order", "2", 200, `"all";r=998, "order";r=1`, "", nil},
		{"/order", "2", 202, `"all";r=998, "order";r=1`, "", nil},
		{"/order", "2", 429, `"order";r=1`, `"violated-policies":["order"]`, nil},
		{"/order", "1", 429, "", `"violated-policies":["order"]`, nil},
	} {
		a := get(t, address, tt.path, append(tt.more, "X-User: ada", "X-Cost: "+tt.cost)...)
		got := regexp.MustCompile(`;t=\d+`).ReplaceAllString(strings.Join(a.header["Ratelimit"], "|"), "")
		if a.status != tt.status || got != tt.ratelimit || !strings.Contains(a.body, tt.body) || a.header.Get("Ratelimit-Policy") == "" {
			t.Errorf("request %d: %d, Ratelimit %s, body %s, want %d, %s and %s", i, a.status, got, a.body, tt.status, tt.ratelimit, tt.body)
		}
	}
}
