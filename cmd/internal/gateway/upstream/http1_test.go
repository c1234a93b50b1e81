package upstream_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/upstream"
)

// poolForm is a request and the form of its response.
type poolForm struct {
	method string
	fields int // number of header fields of the request
	length int // length of each field
	body   int // length of the request's body
	status int
	answer int  // length of the response's body
	flush  bool // in two pieces, without a Content-Length
	hints  int  // number of 1xx responses before it
}

func (f poolForm) request(t testing.TB, url string) *http.Request {
	t.Helper()
	r := request(t, f.method, fmt.Sprintf("%s/?status=%d&answer=%d&flush=%t&hints=%d", url, f.status, f.answer, f.flush, f.hints), strings.Repeat("b", f.body))
	for i := range f.fields {
		r.Header.Set(fmt.Sprintf("X-Field-%d", i), strings.Repeat("x", f.length))
	}
	return r
}

// servePoolForm responds to requests of any form. It repeats the request's nonce, so that responses can be matched.
func servePoolForm(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	var status, answer, hints int
	var flush bool
	_, _ = fmt.Sscanf(r.URL.RawQuery, "status=%d&answer=%d&flush=%t&hints=%d", &status, &answer, &flush, &hints)
	for range hints {
		w.WriteHeader(http.StatusEarlyHints)
	}
	w.WriteHeader(status)
	if flush {
		_ = http.NewResponseController(w).Flush()
	}
	_, _ = io.WriteString(w, strings.Repeat("a", answer))
}

// Whatever a client sends, and however its server responds, the next client on the same connection gets its own response, also
// long after all deadlines of the first request. The previous requests take each of the forms.
func TestPooledConnection(t *testing.T) {
	forms := map[string]poolForm{
		"header over 32 KiB":            {method: "GET", fields: 1, length: 40 << 10, status: 200, answer: 5},
		"HEAD":                          {method: "HEAD", fields: 1, length: 40 << 10, status: 200},
		"204":                           {method: "GET", fields: 1, length: 40 << 10, status: 204},
		"304":                           {method: "GET", fields: 1, length: 40 << 10, status: 304},
		"300 fields":                    {method: "GET", fields: 300, length: 120, status: 200, answer: 5},
		"header and body over 32 KiB":   {method: "POST", fields: 1, length: 20 << 10, body: 16 << 10, status: 200, answer: 5},
		"a body of 16 KiB and a header": {method: "PUT", fields: 2, length: 9 << 10, body: 16 << 10, status: 204},
		"a body of 16 KiB":              {method: "POST", body: 16 << 10, status: 200, answer: 5},
		"hints":                         {method: "GET", fields: 1, length: 40 << 10, status: 200, hints: 3},
		"in pieces":                     {method: "GET", fields: 1, length: 40 << 10, status: 200, answer: 50_000, flush: true},
		"small":                         {method: "GET", status: 200, answer: 5},
	}
	for name, form := range forms {
		t.Run(name, func(t *testing.T) { pooled(t, []poolForm{form}) })
	}
	// And random forms, several in a row.
	pick := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	for range 20 {
		var several []poolForm
		for range 1 + pick.IntN(4) {
			f := poolForm{
				method: []string{"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"}[pick.IntN(6)],
				fields: pick.IntN(3) * pick.IntN(150), length: pick.IntN(500), status: []int{200, 201, 204, 304, 404, 500}[pick.IntN(6)],
				hints: pick.IntN(3) * pick.IntN(2), flush: pick.IntN(2) == 0,
			}
			if f.method != "GET" && f.method != "HEAD" {
				f.body = pick.IntN(17 << 10)
			}
			if f.status != 204 && f.status != 304 && f.method != "HEAD" {
				f.answer = pick.IntN(3) * pick.IntN(40_000)
			}
			several = append(several, f)
		}
		t.Run("random", func(t *testing.T) { pooled(t, several) })
	}
}

// pooled sends the forms over one connection, and afterwards a request of another client.
func pooled(t *testing.T, forms []poolForm) {
	t.Helper()
	cfg := upstream.Config{Servers: []string{"http://a:80"}, Retries: -1, Timeouts: upstream.Timeouts{Header: 3 * time.Second, Idle: 4 * time.Second}}
	inBubble(t, cfg, map[string]http.HandlerFunc{"a:80": servePoolForm}, func(t *testing.T, m *memory, g *upstream.Group) {
		for _, form := range forms {
			if got := ask(t, m, form.request(t, "http://gw:80")); got.status != form.status || len(got.body) != form.answer || got.err != nil {
				t.Errorf("%+v: %d %.100q %v", form, got.status, got.body, got.err)
			}
			synctest.Wait()
			if form.body > 16<<10 {
				continue // it was not sent by the pool
			}
			if faults := g.IdleConnFaults(); g.IdleConns() != 1 || len(faults) > 0 {
				t.Errorf("%+v: %d idle connections: %q", form, g.IdleConns(), faults)
			}
			<-time.After(5 * time.Second)
		}
		for _, f := range []poolForm{{method: "GET", status: 200, answer: 3}, {method: "POST", body: 10, status: 200, answer: 3}} {
			if got := ask(t, m, f.request(t, "http://gw:80")); got.status != 200 || got.body != "aaa" {
				t.Errorf("after %+v: %d %q", forms, got.status, got.body)
			}
			<-time.After(5 * time.Second)
		}
		if s := g.Status()[0]; s.Failures != 0 {
			t.Errorf("after %+v: %+v", forms, s)
		}
	})
}

// An idle connection does not keep the last request in memory.
func TestPooledConnectionForgets(t *testing.T) {
	at := origin(t, servePoolForm)
	var last weak.Pointer[http.Request]
	var others []*time.Timer
	defer func() {
		for _, o := range others {
			o.Stop()
		}
	}()
	gw, g := gatewayWith(t, upstream.Config{Servers: []string{at}}, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r = r.WithContext(context.WithValue(r.Context(), weakKey{}, "something"))
			last = weak.Make(r)
			for range 100 { // the runtime keeps stopped timers while they are a small share of all
				others = append(others, time.AfterFunc(time.Hour, func() {}))
			}
			h.ServeHTTP(w, r)
		})
	})
	c := client(t)
	for _, f := range []poolForm{{method: "GET", status: 200, answer: 3, hints: 1}, {method: "POST", body: 100, status: 200, answer: 9000, flush: true}} {
		if got := do(t, c, f.request(t, gw.URL)); got.status != 200 {
			t.Fatal(got)
		}
		until := time.Now().Add(10 * time.Second)
		for ; last.Value() != nil && time.Now().Before(until); runtime.GC() {
		}
		if last.Value() != nil || g.IdleConns() != 1 {
			t.Errorf("%+v: %d idle connections, request in memory: %t", f, g.IdleConns(), last.Value() != nil)
		}
	}
}

type weakKey struct{}
