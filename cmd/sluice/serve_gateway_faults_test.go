package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/testenv/attacks"
)

// Requests that cannot be sent to HTTP/2 servers, or that these reject, do not eject a server and do not lower the adaptive limit:
// other requests are served.
func TestGatewayClientFaults(t *testing.T) {
	const faults, honest = 200, 400
	server := func() string {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = io.WriteString(w, "served")
		}))
		s.Config.Protocols = new(http.Protocols)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
		s.Config.MaxHeaderBytes = 8 << 10
		s.Start()
		t.Cleanup(s.Close)
		return strings.Replace(s.URL, "http", "h2c", 1)
	}
	p, address := startGateway(t,
		fmt.Sprintf("{upstreams: {api: {servers: [%q, %q]}}, routes: [{path: /**, upstream: api}]}", server(), server()),
		"load_shedding: [{name: api, match: {path: /**}, concurrency: {min: 1, max: 50}}]\n", "")
	large := strings.Repeat("x", 20<<10)
	bad := []struct {
		text   string
		status string
	}{
		{"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Y: " + large + "\r\n\r\n", "431"},
		{"GET /?q=" + large + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "431"},
		{"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + strings.Repeat("Cookie: a="+large[:1000]+"\r\n", 20) + "\r\n", "431"},
		{"GET / HTTP/1.1\r\nHost: x\r\nConnection: close, Upgrade\r\nUpgrade: websocket\r\n\r\n", "400"},
		{"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "400"},
		{"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\nTrailer: a b\r\n\r\n2\r\nok\r\n0\r\n\r\n", ""},
	}
	var all sync.WaitGroup
	var next, served atomic.Int64
	for range 4 {
		all.Go(func() {
			for n := next.Add(1); n <= faults; n = next.Add(1) {
				f := bad[n%int64(len(bad))]
				got, err := attacks.Say(t.Context(), attacks.Target{Address: address, From: "127.0.0.1"}, f.text)
				if err != nil || !strings.HasPrefix(got, "HTTP/1.1 "+f.status) || strings.HasPrefix(got, "HTTP/1.1 5") {
					t.Errorf("%.60q: %.100q %v", f.text, got, err)
				}
			}
		})
		all.Go(func() {
			for range honest / 4 {
				res, err := http.Get("http://" + address + "/") //nolint:noctx // the request is short
				if err != nil {
					t.Error(err)
					continue
				}
				if b, _ := io.ReadAll(res.Body); res.StatusCode == 200 && string(b) == "served" {
					served.Add(1)
				}
				res.Body.Close()
			}
		})
	}
	all.Wait()
	t.Logf("%d malformed requests; %d of %d other requests were served", faults, served.Load(), honest)
	if served.Load()*100 < honest*99 {
		t.Errorf("only %d of %d were served", served.Load(), honest)
	}
	metrics := curl(t, "http://"+p.admin+"/metrics")
	for line := range strings.Lines(metrics) {
		for _, name := range []string{"sluice_upstream_ejections_total{", "sluice_upstream_failures_total{", "sluice_upstream_retries_total{"} {
			if strings.HasPrefix(line, name) && !strings.HasSuffix(line, " 0\n") {
				t.Error(line)
			}
		}
	}
	if want := `sluice_adaptive_limit{limit="api"} 50`; !strings.Contains(metrics, want) || !strings.Contains(metrics, "sluice_upstream_") {
		t.Errorf("no %q in the metrics", want)
	}
}

// The gateway itself responds to OPTIONS *, with the same IP lists, limits and request ID as for other requests. It closes HTTP/1.0
// connections after the request, because other servers may see its end elsewhere, and sends no 1xx to HTTP/1.0 clients.
func TestGatewayOldAndOdd(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</a>")
		w.WriteHeader(http.StatusEarlyHints)
		_, _ = io.WriteString(w, "served")
	}))
	t.Cleanup(api.Close)
	_, address := startGateway(t,
		fmt.Sprintf("{upstreams: {api: {servers: %q}}, routes: [{path: /**, upstream: api}], denied_ips: 127.0.0.9}", api.URL),
		"rules: [{name: star, match: {method: OPTIONS}, per: ip, limit: {rate: 1/month, algorithm: fixed_window}}]\n", "")
	say := func(from, text string) string {
		got, err := attacks.Say(t.Context(), attacks.Target{Address: address, From: from}, text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
		}
		return got
	}
	star := "OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
	for i, want := range []struct{ from, status string }{{"127.0.0.1", "204"}, {"127.0.0.1", "429"}, {"127.0.0.9", "403"}, {"127.0.0.2", "204"}} {
		if got := say(want.from, star); !strings.HasPrefix(got, "HTTP/1.1 "+want.status) || !strings.Contains(got, "X-Request-Id: ") {
			t.Errorf("%d, from %s: %q, want %s", i, want.from, got, want.status)
		}
	}
	if got := say("127.0.0.1", "GET * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 400") {
		t.Errorf("%q", got)
	}
	old := "POST / HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n"
	for _, rest := range []string{"0\r\n\r\nGET /inner HTTP/1.0\r\n\r\n", "GET /inner HTTP/1.0\r\nHost: x\r\n\r\n"} {
		if got := say("127.0.0.1", old+rest); !strings.HasPrefix(got, "HTTP/1.0 200") || strings.Count(got, "HTTP/1.") != 1 || !strings.Contains(got, "Connection: close") {
			t.Errorf("HTTP/1.0: %q", got)
		}
	}
	if got := say("127.0.0.1", "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 103") {
		t.Errorf("HTTP/1.1: %q", got)
	}
}
