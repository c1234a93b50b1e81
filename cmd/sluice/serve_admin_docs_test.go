package main

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

var consoles = regexp.MustCompile("(?s)```console\n(.*?)```")

// Who follows the part of docs/api.md about the admin API command by command gets the answers that it shows.
func TestAdminDocs(t *testing.T) {
	_, part, ok := strings.Cut(read(t, "../../docs/api.md"), "\n## Admin API\n")
	if !ok {
		t.Fatal("docs/api.md has no part about the admin API")
	}
	part, _, _ = strings.Cut(part, "\n## ")
	p := startServe(t, "")
	commands := 0
	for _, block := range consoles.FindAllStringSubmatch(part, -1) {
		for _, shown := range strings.Split("\n"+block[1], "\n$ ")[1:] {
			command, want, _ := strings.Cut(shown, "\n")
			out, err := exec.Command("sh", "-c", strings.ReplaceAll(command, "127.0.0.1:6070", p.admin)).Output()
			if err != nil {
				t.Fatalf("%s: %v", command, err)
			}
			pattern := `(?s)\A` + strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(want)), "…", ".*?") + `\s*\z`
			if !regexp.MustCompile(pattern).Match(out) {
				t.Errorf("%s prints\n%s\nand not\n%s", command, out, want)
			}
			commands++
		}
	}
	if commands < 10 {
		t.Errorf("only %d commands were found", commands)
	}
	for _, call := range []string{"/v1/status", "/v1/rules", "/v1/top", "/v1/watch?interval=x", "/v1/keys", "/v1/explain", "/v1/peek", "/v1/reset", "/v1/block", "/v1/suspend", "/v1/resume", "/v1/reload", "/v1/log-level"} {
		path, _, _ := strings.Cut(call, "?")
		if !strings.Contains(part, path) {
			t.Errorf("%s is not documented", path)
		}
		if got := p.operate(t, "DELETE", call, ""); got.status != 405 {
			t.Errorf("%s is documented and answers %d", call, got.status)
		}
	}
}
