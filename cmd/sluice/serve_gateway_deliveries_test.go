package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

// Every attempt to deliver a queued request has a line in the access log, with the item, its rule, the attempt number, the
// upstream, the status and the outcome. The line of the request names the item. sluice simulate counts the request once.
func TestGatewayLogsDeliveries(t *testing.T) {
	var again atomic.Int64
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch attempt := r.Header.Get("Sluice-Attempt"); {
		case attempt == "": // forwarded without queueing
		case r.URL.Path == "/dead":
			w.WriteHeader(http.StatusBadGateway)
		case attempt == "1":
			again.Add(1)
			panic(http.ErrAbortHandler)
		}
		fmt.Fprint(w, "hello")
	}))
	defer api.Close()
	rules := `rules:
  - {name: again, match: {path: /again}, limit: {rate: 100/s, burst: 1}, on_limit: queue}
  - {name: dead, match: {path: /dead}, limit: {rate: 100/s, burst: 1}, on_limit: queue, queue: {max_attempts: 1}}`
	file := filepath.Join(t.TempDir(), "access.log")
	p, address := startGateway(t,
		fmt.Sprintf("{upstreams: {api: {servers: %q, retries: 0}}, routes: [{path: '/{x}', upstream: api}], access_log: {file: %q}}", api.URL, file),
		rules, fmt.Sprintf("queue: {directory: %q}", t.TempDir()))
	items := map[string]string{}
	for _, path := range []string{"/again", "/dead"} {
		for items[path] == "" { // until two requests arrive within 10 ms
			resp, err := http.Post("http://"+address+path, "text/plain", strings.NewReader("four"))
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			items[path] = strings.TrimPrefix(resp.Header.Get("Location"), "/.sluice/queue/")
		}
	}
	for path, state := range map[string]string{"/again": "done", "/dead": "dead"} {
		for !strings.Contains(curl(t, "http://"+address+"/.sluice/queue/"+items[path]), `"state":"`+state+`"`) {
			if t.Context().Err() != nil {
				t.Fatalf("%s is never %s", path, state)
			}
		}
	}
	p.signal(t, syscall.SIGTERM)
	<-p.ended
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got, requests := map[string]string{}, map[string]string{}
	for line := range strings.Lines(string(b)) {
		var l struct {
			Method, Path, Route, Upstream, Decision, Rule, Outcome string
			Client                                                 string `json:"client_ip"`
			Item                                                   string `json:"queue_item"`
			ID                                                     string `json:"request_id"`
			Attempt, Status                                        int
			In                                                     int `json:"bytes_in"`
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		if l.Item == "" {
			continue
		}
		if l.Item != items[l.Path] {
			t.Errorf("%s does not have item %s", line, items[l.Path])
		}
		if before, ok := requests[l.Item]; ok && before != l.ID {
			t.Errorf("%s has another ID than %s", line, before)
		}
		requests[l.Item] = l.ID
		got[l.Path] += fmt.Sprintf("%d %s %s %d %s %s %s %s %d %s\n", l.Attempt, l.Method, l.Route, l.Status, l.Decision, l.Rule, l.Client,
			strings.ReplaceAll(l.Upstream, api.URL, "api"), l.In, l.Outcome)
	}
	for path, want := range map[string]string{
		"/again": "0 POST /{x} 202 queued again 127.0.0.1  4 \n1 POST /{x} 502 allowed again 127.0.0.1 api 4 queued\n2 POST /{x} 200 allowed again 127.0.0.1 api 4 done\n",
		"/dead":  "0 POST /{x} 202 queued dead 127.0.0.1  4 \n1 POST /{x} 502 allowed dead 127.0.0.1 api 4 dead\n",
	} {
		if got[path] != want {
			t.Errorf("%s is logged as\n%swant\n%s", path, got[path], want)
		}
	}
	if again.Load() != 1 {
		t.Errorf("the first attempt was made %d times", again.Load())
	}
	ruleFile := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, ruleFile, rules)
	code, out, stderr := sluiceRun(t, "simulate", "--rules", ruleFile, file)
	if want := fmt.Sprintf("%d requests", strings.Count(string(b), "\n")-3-strings.Count(string(b), `"decision":"exempt"`)); code != 0 || !strings.Contains(out, want) {
		t.Errorf("sluice simulate: %d %s\n%s\nwant %s", code, out, stderr, want)
	}
}
