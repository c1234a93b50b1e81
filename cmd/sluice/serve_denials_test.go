package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Every 429 of every listener has the limit, the remaining quota and the time until a retry can succeed, in headers and body.
func TestEvery429(t *testing.T) {
	inside, release := make(chan struct{}), make(chan struct{})
	api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/hangs") {
			inside <- struct{}{}
			<-release
		}
	}))
	defer api.Close()
	directory := t.TempDir()
	token, keys := filepath.Join(directory, "token"), filepath.Join(directory, "keys.yaml")
	write(t, token, strings.Repeat("t", 40))
	write(t, keys, "keys: []\n")
	p, address := startGateway(t, fmt.Sprintf(`{upstreams: {api: {servers: %q}}, max_requests_per_address: 2,
  routes: [{path: /private, upstream: api, authentication: api_keys}, {path: '/{x}', upstream: api}]}`, api.URL), `rules:
  - {name: plain, match: {path: /plain}, limit: 1/h}
  - {name: custom, match: {path: /custom}, limit: 1/h, denial: {message: Slow down.}}
  - {name: flight, match: {path: /hangs}, limit: {concurrent: 1}}
  - {name: queued, match: {path: /queued}, limit: 1/h, on_limit: queue}
  - {name: ordered, match: {path: /ordered}, limit: 1/h, on_limit: queue, queue: {order: key}}`,
		fmt.Sprintf("queue: {directory: %q, max_items_per_key: 1}\nauthentication: {api_keys: {files: %q}, failed_attempts: 2/h}\n'admin': {token_file: %q}\n'check_api': {refund_token_file: %q}",
			filepath.Join(directory, "queue"), keys, token, token))
	gateway, service, admin := "http://"+address, "http://"+p.http, "http://"+p.admin
	var hanging sync.WaitGroup
	defer hanging.Wait()
	defer close(release)
	hang := func(path string) {
		hanging.Go(func() {
			if resp, err := http.Get(gateway + path); err == nil {
				resp.Body.Close()
			}
		})
		<-inside
	}
	const check = `{"attributes":{"method":"GET","path":"/plain"}}`
	for _, tt := range []struct {
		name, url, body string
		header          []string
		limit           string
	}{
		{"rule", gateway + "/plain", "", nil, "1"},
		{"rule with a message", gateway + "/custom", "", nil, "1"},
		{"forward authentication", service + "/v1/auth", "", []string{"X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/plain", "X-Forwarded-Host", "h"}, "1"},
		{"check API", service + "/v1/check", check, nil, "1"},
		{"reservation", service + "/v1/reserve", check, nil, "1"},
		{"queue, a stream", gateway + "/queued", "", []string{"Upgrade", "x", "Connection", "Upgrade"}, "1"},
		{"queue full for the key", gateway + "/queued", "", nil, "1"},
		{"queue full for the key, in order", gateway + "/ordered", "", nil, "1"},
		{"wrong credentials", gateway + "/private", "", []string{"X-Api-Key", "wrong"}, "2"},
		{"wrong admin tokens", admin + "/v1/status", "", []string{"Authorization", "Bearer wrong"}, ""},
		{"wrong refund tokens", service + "/v1/check", `{"attributes":{"method":"GET","path":"/plain"},"cost":-1}`, []string{"Authorization", "Bearer wrong"}, ""},
		{"concurrency", gateway + "/hangs", "", nil, "1"},
		{"requests of one address", gateway + "/free", "", nil, "2"},
	} {
		switch tt.name {
		case "concurrency":
			hang("/hangs")
		case "requests of one address":
			hang("/hangs-too")
		}
		check429(t, tt.name, tt.url, tt.body, tt.header, tt.limit)
	}
}

// check429 sends a request until it is denied, and checks the denial.
func check429(t *testing.T, name, url, body string, header []string, limit string) {
	t.Helper()
	for range 100 {
		method := http.MethodGet
		if body != "" {
			method = http.MethodPost
		}
		req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if body != "" {
			req.Header.Set("Content-Type", "application/json")
		}
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusTooManyRequests {
			continue
		}
		h := resp.Header
		seconds, err := strconv.Atoi(h.Get("Retry-After"))
		if err != nil || seconds < 1 || h.Get("X-Ratelimit-Retry-After") != h.Get("Retry-After") || h.Get("X-Ratelimit-Remaining") != "0" ||
			limit != "" && h.Get("X-Ratelimit-Limit") != limit || h.Get("X-Ratelimit-Limit") == "" {
			t.Errorf("%s: %v\n%s", name, h, text)
		}
		if words := fmt.Sprintf("retry in %d s", seconds); !strings.Contains(string(text), words) && !strings.Contains(string(text), "Slow down.") ||
			!strings.Contains(string(text), `"retry_after_ms":`) {
			t.Errorf("%s: no %s in the body: %s", name, words, text)
		}
		return
	}
	t.Errorf("%s: never 429", name)
}
