package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/internal/testenv/tcptest"
)

const documentedRules = `
rules:
  - {name: plain, match: {path: /plain}, per: header:X-User, limit: [3/h, {rate: 100/day, name: day}], on_failure: closed}
  - {name: together, match: {path: /plain}, limit: 50/h}
  - {name: later, match: {method: POST, path: "/later/{id}"}, per: header:X-User, limit: 2/h, on_limit: queue}
  - {name: slow, match: {path: /slow}, per: header:X-User, limit: {rate: 2/s, burst: 3}, on_limit: delay}
  - {name: own, match: {path: /own}, per: header:X-User, limit: 3/h, denial: {status: 403}}
  - {name: text, match: {path: /text}, per: header:X-User, limit: 3/h, denial: {status: 418, body: "{rule}: {limit}", content_type: text/plain}}
`

// documented is a response, either from the limits page or from a server.
type documented struct {
	status  string
	headers map[string]string
	body    string
}

// documentedResponses returns the example responses of sluice limits by rule and outcome.
func documentedResponses(t *testing.T) map[string]documented {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, file, documentedRules)
	_, out, stderr := sluiceRun(t, "limits", "-o", "json", file)
	var page struct {
		Limits []struct {
			Name     string
			Examples []struct {
				When, Status, Body string
				Headers            []struct{ Name, Value string }
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &page); err != nil || stderr != "" {
		t.Fatal(err, stderr)
	}
	all := make(map[string]documented)
	for _, l := range page.Limits {
		for _, e := range l.Examples {
			d := documented{e.Status, make(map[string]string), e.Body}
			for _, h := range e.Headers {
				d.headers[h.Name] = h.Value
			}
			all[l.Name+" "+e.When] = d
		}
	}
	return all
}

// sendAs sends a request and returns the response without headers that are unrelated to limits.
func sendAs(ctx context.Context, method, url, user string) (documented, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return documented{}, err
	}
	r.Header.Set("X-User", user)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return documented{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	var indented bytes.Buffer
	if json.Indent(&indented, b, "", "  ") != nil {
		indented = *bytes.NewBuffer(b)
	}
	d := documented{resp.Status, make(map[string]string), strings.TrimSpace(indented.String())}
	for name, values := range resp.Header {
		if !slices.Contains([]string{"Date", "Content-Length", "X-Request-Id"}, name) {
			d.headers[name] = strings.Join(values, ", ")
		}
	}
	return d, err
}

var (
	queueID   = regexp.MustCompile(`[0-9a-f]{32}`)
	requestID = regexp.MustCompile(`,\s*"request_id": "[0-9a-f]{32}"`) // each request has another
	number    = regexp.MustCompile(`\d+`)
)

// sameText reports whether texts are equal, except for IDs and for the time that passes during the test: numbers of at least 1000
// may differ by a minute in seconds, and the milliseconds of delays and retries too.
func sameText(a, b string) bool {
	a, b = queueID.ReplaceAllString(a, "ID"), queueID.ReplaceAllString(b, "ID")
	x, y := number.FindAllString(a, -1), number.FindAllString(b, -1)
	if number.ReplaceAllString(a, "N") != number.ReplaceAllString(b, "N") || len(x) != len(y) {
		return false
	}
	for i := range x {
		n, _ := strconv.Atoi(x[i])
		m, _ := strconv.Atoi(y[i])
		tolerance := 0
		switch {
		case min(n, m) > 100_000:
			tolerance = 60_000
		case min(n, m) > 1000:
			tolerance = 60
		}
		if max(n, m)-min(n, m) > tolerance {
			return false
		}
	}
	return true
}

func (d documented) compare(t *testing.T, name string, sent documented) {
	t.Helper()
	if _, shown := d.headers["Cache-Control"]; !shown { // the gateway adds it to denials, the middleware leaves it to the application
		delete(sent.headers, "Cache-Control")
	}
	if d.status != sent.status || !slices.Equal(slices.Sorted(maps.Keys(d.headers)), slices.Sorted(maps.Keys(sent.headers))) {
		t.Errorf("%s: the page shows %s %v, the server sent %s %v", name, d.status, d.headers, sent.status, sent.headers)
		return
	}
	for h, want := range d.headers {
		got := sent.headers[h]
		if !sameText(want, got) && h != "X-Ratelimit-Delay" {
			t.Errorf("%s: %s is %q on the page, the server sent %q", name, h, want, got)
		}
	}
	retry := regexp.MustCompile(`"retry_after_ms": \d{1,4}$`)
	plain := func(s string) string {
		lines := strings.Split(s, "\n")
		for i := range lines {
			lines[i] = retry.ReplaceAllString(lines[i], "") // retries of less than 10 s
		}
		return strings.Join(lines, "\n")
	}
	if !sameText(plain(d.body), plain(requestID.ReplaceAllString(sent.body, ""))) {
		t.Errorf("%s: the body on the page is\n%s\nthe server sent\n%s", name, d.body, sent.body)
	}
}

// The example responses of sluice limits equal those of a gateway with a queue, header by header.
func TestLimitsExamplesAreReal(t *testing.T) {
	page := documentedResponses(t)
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer api.Close()
	routes := fmt.Sprintf("{upstreams: {api: {servers: %q}}, routes: [{path: /**, upstream: api}]}", api.URL)
	_, address := startGateway(t, routes, documentedRules, fmt.Sprintf("queue: {directory: %q}", t.TempDir()))
	_, down := startGateway(t, routes, documentedRules, fmt.Sprintf("store: {kind: redis, url: 'redis://%s'}", tcptest.Serve(t, func(c net.Conn) { c.Close() })))
	send := func(address, method, path, user string) documented {
		d, err := sendAs(t.Context(), method, "http://"+address+path, user)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	last := func(n int, method, path string) (d documented) {
		for range n {
			d = send(address, method, path, "example")
		}
		return d
	}
	page["plain over the limit"].compare(t, "plain", last(4, "GET", "/plain"))
	page["own over the limit"].compare(t, "own", last(4, "GET", "/own"))
	page["text over the limit"].compare(t, "text", last(4, "GET", "/text"))
	page["later over the limit, queued"].compare(t, "later", last(3, "POST", "/later/7"))
	page["plain while requests cannot be counted"].compare(t, "down", send(down, "GET", "/plain", "example"))
	for i := 0; ; i++ {
		user := fmt.Sprint("user", i)
		_ = send(address, "GET", "/slow", user)
		if d := send(address, "GET", "/slow", user); d.headers["X-Ratelimit-Delay"] != "" || i == 20 { // on a slow machine the first requests may not be delayed
			page["slow over the limit, delayed"].compare(t, "slow", d)
			break
		}
	}
	page["slow over the limit"].compare(t, "slow queue", deniedOf(t, 6, "http://"+address+"/slow"))
	if len(page) != 10 { // includes those of the rule together, and the 429 of the rule later without a queue
		t.Errorf("the page has examples of %v", slices.Sorted(maps.Keys(page)))
	}
}

// deniedOf sends concurrent requests and returns a denied response.
func deniedOf(t *testing.T, n int, url string) documented {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	denied := make(chan documented, n)
	for range n {
		go func() {
			if d, err := sendAs(ctx, "GET", url, "crowd"); err == nil && strings.HasPrefix(d.status, "429") {
				denied <- d
			}
		}()
	}
	select {
	case d := <-denied:
		return d
	case <-t.Context().Done():
		t.Fatal("no request was denied")
		return documented{}
	}
}
