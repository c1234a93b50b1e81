package httplimit_test

import (
	"net/http"
	"testing"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/internal/testenv/allocs"
	"github.com/sluiceproject/sluice/memstore"
)

// discard is a response writer that drops the response and does not allocate.
type discard struct {
	h      http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.h }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(status int)      { d.status = status }

// count is a handler that counts its requests.
type count struct{ n int }

func (c *count) ServeHTTP(http.ResponseWriter, *http.Request) { c.n++ }

// plenty is a limit that benchmarks never reach.
var plenty = sluice.PerSecond(1 << 22)

func manyRules() []*sluice.Rule {
	return []*sluice.Rule{rule("second", plenty), rule("minute", sluice.PerMinute(1<<28)), rule("day", sluice.PerDay(1<<38))}
}

func BenchmarkMiddleware(b *testing.B) {
	one := []*sluice.Rule{rule("api", plenty)}
	for _, bm := range []struct {
		name  string
		rules []*sluice.Rule // none: the handler alone
		key   httplimit.KeyFunc
		opts  []httplimit.Option
	}{
		{"none", nil, nil, nil},
		{"allowed", one, httplimit.ByIP(), nil},
		{"allowed/no headers", one, httplimit.ByIP(), []httplimit.Option{httplimit.Headers(0)}},
		{"allowed/by header", one, httplimit.ByHeader("X-User"), nil},
		{"allowed/three rules", manyRules(), httplimit.ByIP(), nil},
		{"allowed/charge if", one, httplimit.ByIP(), []httplimit.Option{failedLogins}},
	} {
		b.Run(bm.name, func(b *testing.B) {
			next := &count{}
			var h http.Handler = next
			if bm.rules != nil {
				h = httplimit.Middleware(limiter(memstore.New(), bm.rules...), bm.key, bm.opts...)(next)
			}
			w, r := &discard{h: http.Header{}}, request(header("X-User", "alice"))
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				clear(w.h)
				h.ServeHTTP(w, r)
				n++
			}
			if next.n != n {
				b.Errorf("%d of %d requests were allowed, so something else was measured", next.n, n)
			}
		})
	}
}

func BenchmarkDenied(b *testing.B) {
	next := &count{}
	h := httplimit.Middleware(limiter(memstore.New(), rule("api", sluice.PerDay(1))), httplimit.ByIP())(next)
	w, r := &discard{h: http.Header{}}, request()
	h.ServeHTTP(w, r)
	b.ReportAllocs()
	for b.Loop() {
		clear(w.h)
		h.ServeHTTP(w, r)
	}
	if next.n != 1 || w.status != http.StatusTooManyRequests {
		b.Errorf("%d were allowed and the last status was %d, so something else was measured", next.n, w.status)
	}
}

func BenchmarkByIP(b *testing.B) {
	r := request(header("X-Forwarded-For", "9.9.9.9, 203.0.113.7, 10.0.0.2"), func(r *http.Request) { r.RemoteAddr = tp })
	for name, key := range map[string]httplimit.KeyFunc{"peer": ways["peer"], "proxies": ways["xff"]} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if k, err := key(r); k == "" || err != nil {
					b.Fatal(k, err)
				}
			}
		})
	}
}

// TestMiddlewareAllocations: for any rules, one string for the numbers and one array for the header values.
func TestMiddlewareAllocations(t *testing.T) {
	for name, rules := range map[string][]*sluice.Rule{"one": {rule("api", plenty)}, "three": manyRules()} {
		next := &count{}
		h := httplimit.Middleware(limiter(memstore.New(), rules...), httplimit.ByIP())(next)
		w, r := &discard{h: http.Header{}}, request()
		got := allocs.Of(func() {
			clear(w.h)
			h.ServeHTTP(w, r)
		})
		if got > 2 {
			t.Errorf("%s: %v allocations for an allowed request, want 2", name, got)
		}
		if next.n != 400 {
			t.Errorf("%s: %d of 400 were allowed", name, next.n)
		}
	}
}

// TestDeniedAllocations: a denial costs one string and one array for its headers, the seconds, and the sentence.
func TestDeniedAllocations(t *testing.T) {
	next := &count{}
	h := httplimit.Middleware(limiter(memstore.New(), rule("api", sluice.PerDay(1))), httplimit.ByIP())(next)
	w, r := &discard{h: http.Header{}}, request()
	h.ServeHTTP(w, r)
	got := allocs.Of(func() {
		clear(w.h)
		h.ServeHTTP(w, r)
	})
	if got > 4 || next.n != 1 || w.status != http.StatusTooManyRequests {
		t.Errorf("%v allocations, want 4; %d were allowed, the last status was %d", got, next.n, w.status)
	}
}
