package httplimit_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/internal/buffers"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rules"
)

// Unfinished responses use at most their client's share of the memory for bodies. Requests whose responses do not fit are
// charged their estimate, and responses to other clients are still read.
func TestSettleMemory(t *testing.T) {
	const most = 16 << 20
	buffers.Process.SetMax(most)
	t.Cleanup(func() { buffers.Process.SetMax(buffers.DefaultMax) })
	const usage = `{"usage":{"total_tokens":42}}`
	ends := make(chan struct{})
	rule := tokens(rules.ActualCost{JSON: "usage.total_tokens"}, func(r *rules.Rule) { r.Cost.Default = 1 })
	l := limiter(memstore.New())
	open := make(chan struct{})
	h := httplimit.RulesMiddleware(l, always(rules.Config{Rules: []rules.Rule{rule}}))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/open" {
			_, _ = io.WriteString(w, strings.Repeat(" ", 700<<10))
			_, _ = io.WriteString(w, " ") // allocates the buffer of 1 MiB
			open <- struct{}{}
			<-ends
		}
		_, _ = io.WriteString(w, usage)
	}))
	ask := func(client, path string) {
		r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
		r.RemoteAddr = client
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	const n = 20
	was := bounds.BufferedBytesPerAddress.Count()
	var all sync.WaitGroup
	for range n {
		all.Go(func() { ask("192.0.2.1:1", "/open") })
		<-open
	}
	used := buffers.Process.Used()
	if used > most/buffers.ClientShare || used < 1<<20 {
		t.Errorf("%d responses of one client hold %d bytes, want at most a quarter of %d", n, used, most)
	}
	refused := bounds.BufferedBytesPerAddress.Count() - was
	if held := used >> 20; refused != n-held {
		t.Errorf("%d responses were not read, want %d", refused, n-held)
	}
	ask("192.0.2.2:1", "/")
	if got, want := spent(t, l, rule), int64(n+42); got != want {
		t.Errorf("%d charged with another client's response, want %d", got, want)
	}
	close(ends)
	all.Wait()
	if got, want := spent(t, l, rule), refused+(n-refused)*42+42; got != want {
		t.Errorf("%d charged, want %d: %d estimates and %d responses", got, want, refused, n-refused+1)
	}
	if used := buffers.Process.Used(); used != 0 {
		t.Errorf("%d bytes are still in use", used)
	}
}

// A response that is too long to be read frees its buffer before it ends.
func TestSettleLetsGo(t *testing.T) {
	const most = 1 << 20
	rule := tokens(rules.ActualCost{JSON: "usage.total_tokens"})
	var at, beyond int64
	h := httplimit.RulesMiddleware(limiter(memstore.New()), always(rules.Config{Rules: []rules.Rule{rule}}))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat(" ", most))
		at = buffers.Process.Used()
		_, _ = io.WriteString(w, " ")
		beyond = buffers.Process.Used()
	}))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	if at != most || beyond != 0 {
		t.Errorf("%d bytes in use at the maximum, %d beyond it", at, beyond)
	}
}
