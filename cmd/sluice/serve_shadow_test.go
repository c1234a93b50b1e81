package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// No listener sends headers of a rule in shadow mode, alone or with another rule, even if its remaining quota is lower. The body of
// the check API contains it with shadow-denied. sluice limits does not list it.
func TestShadowRulesInHeaders(t *testing.T) {
	api := application(t)
	const rules = `rules:
  - {name: real, match: {path: /both}, limit: 100/h}
  - {name: trial, limit: 1/h, shadow: true}`
	p, address := startGateway(t, fmt.Sprintf("{upstreams: {api: {servers: %q}}, routes: [{path: '/{x}', upstream: api}]}", api.URL), rules, "")
	ask := func(edge, path string) (http.Header, string) {
		t.Helper()
		method, url, body := http.MethodGet, "http://"+address+path, ""
		header := http.Header{}
		switch edge {
		case "forward authentication":
			url = "http://" + p.http + "/v1/auth"
			header = http.Header{"X-Forwarded-Method": {"GET"}, "X-Forwarded-Uri": {path}, "X-Forwarded-Host": {"h"}}
		case "check API":
			method, url, body = http.MethodPost, "http://"+p.http+"/v1/check", fmt.Sprintf(`{"attributes":{"method":"GET","path":%q}}`, path)
			header = http.Header{"Content-Type": {"application/json"}}
		}
		req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = header
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode >= 400 {
			t.Errorf("%s: %d %s, %v", edge, resp.StatusCode, text, err)
		}
		return resp.Header, string(text)
	}
	for _, edge := range []string{"gateway", "forward authentication", "check API"} {
		for range 2 {
			h, body := ask(edge, "/both")
			if h.Get("X-Ratelimit-Limit") != "100" || h.Get("Ratelimit-Policy") != `"real";q=100;w=3600` || strings.Contains(h.Get("Ratelimit"), "trial") {
				t.Errorf("%s: %v", edge, h)
			}
			if edge == "check API" && (!strings.Contains(body, `"rule":"trial"`) || !strings.Contains(body, `"shadow_denied":true`)) {
				t.Errorf("%s: %s", edge, body)
			}
			if h, _ = ask(edge, "/other"); h.Get("X-Ratelimit-Limit")+h.Get("Ratelimit-Policy")+h.Get("Ratelimit") != "" {
				t.Errorf("%s: %v", edge, h)
			}
		}
	}
	if code, out, _ := sluiceRun(t, "limits", p.rules); code != 0 || !strings.Contains(out, "real") || strings.Contains(out, "trial") {
		t.Errorf("sluice limits: %d\n%s", code, out)
	}
}
