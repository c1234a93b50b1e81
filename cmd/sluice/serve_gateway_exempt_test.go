package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// The gateway itself responds to CORS preflights and status requests, and no rule counts them. The access log marks them as exempt
// with any status, and sluice simulate skips them.
func TestGatewayLogsExempt(t *testing.T) {
	api := httptest.NewServer(http.NotFoundHandler())
	defer api.Close()
	rules := "rules: [{name: all, limit: 2/h, on_limit: queue}]"
	file := filepath.Join(t.TempDir(), "access.log")
	p, address := startGateway(t, fmt.Sprintf(
		"{upstreams: {api: {servers: %q}}, routes: [{path: '/{x}', upstream: api, cors: {origins: ['https://a.example']}}], access_log: {file: %q}}", api.URL, file),
		rules, fmt.Sprintf("queue: {directory: %q}", t.TempDir()))
	send := func(method, path string, fields ...string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(fields); i += 2 {
			r.Header.Set(fields[i], fields[i+1])
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp
	}
	preflight := []string{"Origin", "https://a.example", "Access-Control-Request-Method", "PUT"}
	for range 20 {
		send("OPTIONS", "/x", preflight...)
	}
	send("GET", "/x")
	send("GET", "/x")
	at := send("POST", "/x").Header.Get("Location")
	send("GET", at)
	send("OPTIONS", at, preflight...)
	send("DELETE", at)
	send("DELETE", "/.sluice/queue/unknown")
	p.signal(t, syscall.SIGTERM)
	<-p.ended
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for line := range strings.Lines(string(b)) {
		var l struct {
			Method, Path, Decision string
			Status                 int
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		got[fmt.Sprintf("%s %s %d %s", l.Method, strings.ReplaceAll(l.Path, at, "/item"), l.Status, l.Decision)]++
	}
	want := map[string]int{
		"OPTIONS /x 204 exempt": 20, "GET /x 404 allowed": 2, "POST /x 202 queued": 1, "GET /item 200 exempt": 1, "OPTIONS /item 204 exempt": 1,
		"DELETE /item 200 exempt": 1, "DELETE /.sluice/queue/unknown 404 exempt": 1,
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the log has\n%v\nwant\n%v", got, want)
	}
	ruleFile := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, ruleFile, rules)
	code, out, stderr := sluiceRun(t, "simulate", "--rules", ruleFile, file)
	if code != 0 || !strings.Contains(out, "\n3 requests ") || !strings.Contains(out, "allowed 2 (66.7 %), queued 1 (33.3 %)") ||
		!strings.Contains(out, "note: 24 lines were skipped") {
		t.Errorf("sluice simulate: %d %s\n%s", code, out, stderr)
	}
}
