package main

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

var consoles = regexp.MustCompile("(?s)```console\n(.*?)```")

// The commands of docs/admin-api.md print the output that it shows.
func TestAdminDocs(t *testing.T) {
	page := read(t, "../../docs/admin-api.md")
	p := startServe(t, "")
	commands := 0
	for _, block := range consoles.FindAllStringSubmatch(page, -1) {
		for _, shown := range strings.Split("\n"+block[1], "\n$ ")[1:] {
			command, want, _ := strings.Cut(shown, "\n")
			out, err := exec.Command("sh", "-c", strings.ReplaceAll(command, "127.0.0.1:6070", p.admin)).Output()
			if err != nil {
				t.Fatalf("%s: %v", command, err)
			}
			pattern := `(?s)\A` + strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(want)), "…", ".*?") + `\s*\z`
			if !regexp.MustCompile(pattern).Match(out) {
				t.Errorf("%s prints\n%s\nwant\n%s", command, out, want)
			}
			commands++
		}
	}
	if commands < 10 {
		t.Errorf("only %d commands were found", commands)
	}
	for _, call := range []string{"/v1/status", "/v1/rules", "/v1/top", "/v1/watch?interval=x", "/v1/keys", "/v1/explain", "/v1/peek", "/v1/reset", "/v1/block", "/v1/suspend", "/v1/resume", "/v1/reload", "/v1/log-level"} {
		path, _, _ := strings.Cut(call, "?")
		if !strings.Contains(page, path) {
			t.Errorf("%s is not documented", path)
		}
		if got := p.operate(t, "DELETE", call, ""); got.status != 405 {
			t.Errorf("DELETE %s: status %d, want 405", call, got.status)
		}
	}
}
