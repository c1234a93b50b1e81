package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/rulework/sample"
	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rulefile"
)

// sluiceRun runs a command and returns its exit code and output.
func sluiceRun(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = run(t.Context(), args, &out, &err)
	return code, out.String(), err.String()
}

// hangs is the time after which a test treats an operation as hanging. It is long enough for busy machines.
const hangs = 30 * time.Second

// The help of every command has a description and an example.
func TestEveryHelpHasAnExample(t *testing.T) {
	var walk func(c *cobra.Command, path []string)
	walk = func(c *cobra.Command, path []string) {
		code, out, _ := sluiceRun(t, append(path, "--help")...)
		_, example, found := strings.Cut(out, "Examples:\n")
		if code != term.ExitFine || !found || !strings.Contains(example, "sluice "+strings.Join(path, " ")) {
			t.Errorf("sluice %s --help: exit %d, no example in\n%s", strings.Join(path, " "), code, out)
		}
		for line := range strings.Lines(out) {
			if term.Width(strings.TrimRight(line, "\n")) > 130 {
				t.Errorf("sluice %s --help: a line is too long for a terminal: %s", strings.Join(path, " "), line)
			}
		}
		for _, sub := range c.Commands() {
			if !sub.Hidden {
				walk(sub, append(path[:len(path):len(path)], sub.Name()))
			}
		}
	}
	walk(rootCommand(io.Discard, io.Discard), nil)
}

// With -o json every command prints exactly one JSON value.
func TestJSONIsJSON(t *testing.T) {
	t.Chdir("testdata")
	for _, args := range [][]string{
		{"check", "posts"},
		{"check", "broken"},
		{"check", "warned"},
		{"test", "classic"},
		{"test", "failing"},
		{"explain", "--rules", "plans", "/search"},
		{"explain", "--rules", "classic", "--domain", "auth", "a=b"},
		{"limits", "plans"},
		{"version"},
	} {
		_, out, _ := sluiceRun(t, append(args, "-o", "json")...)
		var v any
		if err := json.Unmarshal([]byte(out), &v); err != nil {
			t.Errorf("sluice %s -o json: %v in\n%s", strings.Join(args, " "), err, out)
		}
	}
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if code, out, _ := sluiceRun(t, "completion", shell); code != term.ExitFine || !strings.Contains(out, "sluice") {
			t.Errorf("completion %s: exit %d, %d bytes", shell, code, len(out))
		}
	}
	const files, nothing = ":8", ":4" // directives: files with these extensions, and no files
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"check", ""}, "yaml\nyml\n" + files},
		{[]string{"test", ""}, "yaml\nyml\n" + files},
		{[]string{"limits", ""}, "yaml\nyml\n" + files},
		{[]string{"fmt", ""}, "yaml\nyml\n" + files},
		{[]string{"explain", "--rules", ""}, "yaml\nyml\n" + files},
		{[]string{"explain", ""}, nothing},
		{[]string{"schema", ""}, "rules\nenvoy\ntest\nservice\n" + nothing},
		{[]string{"check", "-o", ""}, "text\njson\n" + nothing},
		{[]string{"check", "--warnings", ""}, "error\nshow\noff\n" + nothing},
	} {
		_, out, _ := sluiceRun(t, append([]string{cobra.ShellCompNoDescRequestCmd}, test.args...)...)
		if got := strings.TrimSpace(out); got != test.want {
			t.Errorf("completion of %q: %q, want %q", test.args, got, test.want)
		}
	}
}

// explain reads a snapshot and does not change it.
func TestExplainSnapshot(t *testing.T) {
	dir := t.TempDir()
	rules, snapshot := filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "state")
	write(t, rules, "rules:\n  - {name: rewards, per: header:X-Device, limit: 5/week, algorithm: sliding_window_log}\n")
	loaded, err := rulefile.Load(rulefile.Options{}, rules)
	if err != nil {
		t.Fatal(err)
	}
	store, err := memstore.Open(memstore.Config{SnapshotFile: snapshot})
	if err != nil {
		t.Fatal(err)
	}
	h, err := sample.ParseSend("GET /rewards")
	if err != nil {
		t.Fatal(err)
	}
	if err := h.AddHeader("X-Device", "d1"); err != nil {
		t.Fatal(err)
	}
	sent, err := h.Request()
	if err != nil {
		t.Fatal(err)
	}
	takes := loaded.Set.Explain(httplimit.NewRulesRequest(sent, loaded.Set)).Takes
	for range 5 {
		if err := store.Apply(t.Context(), takes, make([]sluice.Decision, len(takes))); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.SaveSnapshot(); err != nil {
		t.Fatal(err)
	}
	before := read(t, snapshot)
	for range 2 {
		_, out, stderr := sluiceRun(t, "explain", "--rules", rules, "/rewards", "-H", "X-Device: d1", "--snapshot", snapshot)
		for _, want := range []string{
			"denied: rewards has 0 of 5 left, retry after 6d23h",
			"0 of 5 left, fully reset in 6d23h",
		} {
			if !strings.Contains(out, want) {
				t.Errorf("no %q in\n%s%s", want, out, stderr)
			}
		}
	}
	if read(t, snapshot) != before {
		t.Error("explain changed the snapshot")
	}
	write(t, snapshot, before[:len(before)/2])
	code, _, stderr := sluiceRun(t, "explain", "--rules", rules, "/rewards", "--snapshot", snapshot)
	if code != term.ExitWrong || !strings.Contains(stderr, "snapshot") {
		t.Errorf("half a snapshot: exit %d, %s", code, stderr)
	}
}

// No command prints secrets of rules or requests.
func TestSecretsAreMasked(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "rules.yaml"), `
attributes:
  token: {header: X-Token, secret: true}
rules:
  - {name: a, match: {header: {Authorization: Bearer-swordfish}}, per: [token, "cookie:session"], limit: 1/s}
  - {name: b, match: {token: swordfish}, per: "header:X-Api-Key", limit: 1/s}
  - {name: c, except: {cookie: {session: swordfish}}, limit: 100/s}
`)
	write(t, filepath.Join(dir, "rules_test.yaml"), `
tests:
  - name: fails
    requests:
      - request: GET /
        headers: {X-Token: swordfish, Authorization: Bearer-swordfish, X-Api-Key: swordfish}
        cookies: {session: swordfish}
        expect: deny
`)
	for _, args := range [][]string{
		{"check", dir, "--warnings=show"},
		{"check", dir, "--warnings=show", "-o", "json"},
		{"test", dir},
		{"test", dir, "-o", "json"},
		{"limits", dir},
		{"limits", "--html", dir},
		{
			"explain", "--rules", dir, "/?a=swordfish", "-H", "X-Token: swordfish", "-H", "Authorization: Bearer-swordfish",
			"-H", "X-Api-Key: swordfish", "--cookie", "session=swordfish",
		},
	} {
		_, out, stderr := sluiceRun(t, args...)
		if strings.Contains(out+stderr, "swordfish") {
			t.Errorf("sluice %s prints a secret:\n%s%s", strings.Join(args, " "), out, stderr)
		}
	}
}

func write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The limits page escapes all text from rules, and loads no other resources.
func TestLimitsPageIsSafe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, file, `
rules:
  - name: <script>alert(1)</script>
    description: "<img src=x onerror=alert(2)> | [a](javascript:alert(3))\n# <b>x</b>"
    match: {path: "/a<script>b"}
    limit: 1/s
`)
	_, page, stderr := sluiceRun(t, "limits", "--html", "--title", "<script>", file)
	for _, bad := range []string{"<script", "<img", "<b>", "http://", "src=\"", "href"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page contains %s:\n%s%s", bad, page, stderr)
		}
	}
	_, page, stderr = sluiceRun(t, "limits", "--markdown", file)
	for line := range strings.Lines(page) {
		code := strings.HasPrefix(line, "    ")
		text := strings.NewReplacer(`\]`, "", `\#`, "").Replace(line)
		if !code && (strings.ContainsAny(text, "<[") && !strings.Contains(text, `\[`) || strings.Count(text, "# ") > 1) {
			t.Errorf("unescaped markup: %s%s", line, stderr)
		}
	}
}
