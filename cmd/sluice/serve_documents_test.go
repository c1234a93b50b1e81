package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/testenv/rlstest"
)

// Two domains in one file, as teams write them that share a rate limit service.
const twoDomains = `domain: messaging
descriptors:
  - {key: message_type, value: marketing, rate_limit: {unit: day, requests_per_unit: 5}}
---
domain: auth
descriptors:
  - {key: auth_type, value: login, rate_limit: {unit: minute, requests_per_unit: 5}}
`

// The service enforces every YAML document of a file and of the files in a directory, in either format. If a document has an error,
// the service keeps its rules, and the log has the line in the file.
func TestServeDocuments(t *testing.T) {
	const native = `client_ip: {trusted_proxies: []}
rules:
  - {name: posts, match: {path: /posts}, limit: 1/day}
`
	one := filepath.Join(t.TempDir(), "one.yaml")
	write(t, one, twoDomains+"---\n"+native)
	several := t.TempDir()
	write(t, filepath.Join(several, "envoy.yaml"), "---\n"+twoDomains+"---\n")
	write(t, filepath.Join(several, "native.yaml"), "# nothing\n---\n"+native+"---\nrules: []\n")
	for name, path := range map[string]string{"one file": one, "a directory": several} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startServe(t, fmt.Sprintf("rules: {paths: [%q]}", path))
			client := p.client(t)
			for _, c := range []struct{ domain, entry, want string }{
				{"messaging", "message_type=marketing", "OK: OK 5/DAY left 4"},
				{"auth", "auth_type=login", "OK: OK 5/MINUTE left 4"},
				{"auth", "auth_type=logout", "OK: OK"},
			} {
				if got := rlstest.Answer(t.Context(), client, c.domain, c.entry); got != c.want {
					t.Errorf("%s, %s: got %s, want %s", c.domain, c.entry, got, c.want)
				}
			}
			posts := func(want int) {
				t.Helper()
				if status, body := p.ask(t, "/v1/check", `{"attributes": {"path": "/posts"}}`); status != want {
					t.Errorf("/posts: status %d, %v, want %d", status, body, want)
				}
			}
			posts(200)
			posts(429)
			file := one
			if path == several {
				file = filepath.Join(several, "envoy.yaml")
			}
			rest := "---\n" + native
			if path == several {
				rest = ""
			}
			write(t, file, strings.Replace(twoDomains, "5}}\n---", "9}}\n---", 1)+"---\nrules:\n  - {name: other, limit: 5}\n"+rest)
			p.signal(t, syscall.SIGHUP)
			if line := p.await(t, "rules reload failed"); !strings.Contains(line, filepath.Base(file)+":10:26: ") {
				t.Errorf("the log line is %s", line)
			}
			if got := rlstest.Answer(t.Context(), client, "messaging", "message_type=marketing hits:0"); !strings.Contains(got, " 5/DAY ") {
				t.Errorf("with an invalid document: %s", got)
			}
			write(t, file, strings.ReplaceAll(twoDomains, "5}}", "9}}")+rest)
			p.await(t, "rules reloaded")
			for domain, entry := range map[string]string{"messaging": "message_type=marketing", "auth": "auth_type=login"} {
				if got := rlstest.Answer(t.Context(), client, domain, entry+" hits:0"); !strings.Contains(got, " 9/") {
					t.Errorf("after a change of both documents %s: %s", domain, got)
				}
			}
			posts(429)
		})
	}
}
