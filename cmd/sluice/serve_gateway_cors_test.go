package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// corsPage sends requests that need a preflight to the gateway in its query, which has another origin, until one is denied. It shows
// the detail of the denial, then that a response of a route without CORS cannot be read.
const corsPage = `<!doctype html><title>page</title><pre id="saw"></pre><script>
const saw = document.getElementById("saw"), say = (...words) => { saw.textContent += words.join(" ") + "\n" };
const call = (path, method) => fetch("http://" + location.search.slice(1) + path, {method, credentials: "include", headers: {"X-Api-Key": "ada"}});
(async () => {
	for (let i = 1; i <= 3; i++) {
		const r = await call("/quota", "PUT"), h = n => r.headers.get(n);
		say(i, r.status, "left", h("X-Ratelimit-Remaining"), "policy", h("Ratelimit-Policy"), "app", h("X-App"), "id", h("X-Request-Id") !== null);
		if (r.status === 429) say([h("Retry-After"), h("Ratelimit"), (await r.json()).detail].join(" ").replace(/1[78]\d\d/g, "SECONDS"));
	}
	await call("/quota", "PURGE").then(r => say("PURGE", r.status), e => say("PURGE", e.name));
	await call("/closed", "GET").then(r => say("closed", r.status), e => say("closed", e.name));
})().catch(e => say("fault", e)).finally(() => fetch("/finished"));
</script><img src="/held">`

// site serves corsPage and delays its load event until the script is done, because the browser prints the page when it is loaded.
func site(t *testing.T) *httptest.Server {
	t.Helper()
	finished := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/page", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, corsPage)
	})
	mux.HandleFunc("/finished", func(http.ResponseWriter, *http.Request) { close(finished) })
	mux.HandleFunc("/held", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-finished:
		case <-r.Context().Done():
		}
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

// A script of another origin can read the gateway's 429 in a browser. Preflights are not counted: 100 of them leave the remaining
// quota unchanged.
func TestGatewayCORS(t *testing.T) {
	t.Parallel()
	page := site(t)
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-App", r.Method)
		w.Header().Set("Access-Control-Allow-Origin", "http://localhost") // set by the upstream itself
	}))
	t.Cleanup(app.Close)
	p, address := startGateway(t, fmt.Sprintf(`{upstreams: {app: {servers: %q}}, routes: [
  {path: /closed, upstream: app},
  {path: /**, upstream: app, cors: {origins: [%q, "https://*.example.com"], credentials: true, exposed_headers: [X-App]}}]}`, app.URL, page.URL),
		"rules: [{name: quota, match: {path: /quota}, per: header:X-Api-Key, limit: 2/h}, {name: tens, match: {path: /tens}, limit: 7/h}]", "")

	const want = `1 200 left 1 policy "quota";q=2;w=3600 app PUT id true
2 200 left 0 policy "quota";q=2;w=3600 app PUT id true
3 429 left 0 policy "quota";q=2;w=3600 app  id true
SECONDS "quota";r=0;t=SECONDS Rate limit quota exceeded; retry in SECONDS s.
PURGE TypeError
closed TypeError
`
	if got := browserSaw(t, page.URL+"/page?"+address); got != want {
		t.Errorf("the browser saw\n%s\nwant\n%s", got, want)
	}

	send := func(method string, header ...string) *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+"/tens", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		a.Body.Close()
		return a
	}
	peek := func() (left int) {
		_, out, errs := sluiceRun(t, "peek", "tens", "--admin-url", "http://"+p.admin)
		if _, err := fmt.Sscanf(out, "✓ tens: %d of 7 left", &left); err != nil {
			t.Fatalf("%v: %s%s", err, out, errs)
		}
		return left
	}
	send("GET")
	before := peek()
	for range 100 {
		if a := send("OPTIONS", "Origin", "https://a.example.com", "Access-Control-Request-Method", "PUT"); a.StatusCode != 204 || a.Header.Get("Access-Control-Allow-Origin") != "https://a.example.com" {
			t.Fatalf("%d %v", a.StatusCode, a.Header)
		}
	}
	if after := peek(); before != 6 || after != before {
		t.Errorf("%d left before 100 preflights, and %d after", before, after)
	}
	got := ""
	for range 10 {
		got += fmt.Sprint(send("PUT", "Origin", "https://a.example.com").StatusCode, " ")
	}
	if want := strings.Repeat("200 ", 6) + strings.Repeat("429 ", 4); got != want {
		t.Errorf("10 requests: %s, want %s", got, want)
	}
}
