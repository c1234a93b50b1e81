package main

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/demo"
)

// startDemo runs the demo as a program named sluice that is not on the PATH, like go run does. It returns the printed guide, the
// directory for temporary files, and a function that stops the demo.
func startDemo(t *testing.T) (guide, files string, end func()) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "a place", "sluice")
	if err := os.Mkdir(filepath.Dir(program), 0o700); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, data, 0o700); err != nil {
		t.Fatal(err)
	}
	files = t.TempDir()
	cmd := exec.Command(program, "demo", "--listen", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), asProgram+"=1", "GORACE=atexit_sleep_ms=0", "TMPDIR="+files)
	var faults bytes.Buffer
	cmd.Stderr = &faults
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil || faults.Len() > 0 {
			t.Errorf("the demo exited with %v\n%s", err, &faults)
		}
	})
	t.Cleanup(end)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		guide += lines.Text() + "\n"
		if strings.HasPrefix(lines.Text(), "ctrl-C") {
			return guide, files, end
		}
	}
	end()
	t.Fatalf("the demo printed only\n%s", guide)
	return "", "", nil
}

// The commands that the demo prints have the described effect when pasted into a shell one after the other. The demo deletes its
// files when it stops.
func TestDemoCommands(t *testing.T) {
	t.Parallel()
	guide, files, end := startDemo(t)
	var script strings.Builder
	var commands []string
	for line := range strings.Lines(guide) {
		if command, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "  "); ok {
			commands = append(commands, command)
			if strings.HasSuffix(command, " watch") {
				command += " | head -1" // watch runs until ctrl-C
			}
			script.WriteString(command + "\necho ==========\n")
		}
	}
	shell := exec.Command("bash", "--norc", "-s")
	shell.Stdin = strings.NewReader(script.String())
	shell.Env = append(os.Environ(), asProgram+"=1", "GORACE=atexit_sleep_ms=0")
	out, err := shell.CombinedOutput()
	printed := strings.Split(strings.ReplaceAll(string(out), "\r", ""), "==========\n")
	wants := []struct{ command, output string }{
		{"curl -i ", `(?s)^.*HTTP/1.1 200 OK\n.*X-Ratelimit-Limit: 5\nX-Ratelimit-Remaining: 4\n.*\nhello\n$`},
		{"for i in 1 2 3 4 5; ", `(?s)^200\n200\n200\n200\n429\n.*HTTP/1.1 429 Too Many Requests\n.*application/problem\+json\n.*\nRetry-After: .*X-Ratelimit-Retry-After: .*"status":429`},
		{"for i in 1 2; ", `(?s)^HTTP/1.1 200 OK\n.*the export is done\nHTTP/1.1 202 Accepted\n.*\nLocation: /.*"state":"queued"`},
		{"status=", `^$`},
		{"while curl ", `(?s)^{"id":"\w+","state":"queued",.*\n{[^\n]*"state":"done",[^\n]*"result":{"status":200,[^\n]*"body":"the export is done\\n"}}\n$`},
		{"export ", `^$`},
		{"sluice status", `(?s)^healthy: .*store +memory: available\nrules +10 rules, 1 Envoy domain`},
		{"sluice top", `(?s)^keys denied most often in the last minutes\n.*hello-per-ip +ip=127.0.0.1 `},
		{"sluice watch", `allowed .*/s  denied .*/s\n$`},
		{"sluice queue list", `(?s)^\d+ queued, \d+ delivering, 0 dead, \d+ done or cancelled;`},
	}
	if err != nil || len(commands) != len(wants) || len(printed) != len(wants)+1 {
		t.Fatalf("%v: %d commands, want %d:\n%s\n%s", err, len(commands), len(wants), guide, out)
	}
	for i, want := range wants {
		if !strings.HasPrefix(commands[i], want.command) || !regexp.MustCompile(want.output).MatchString(printed[i]) {
			t.Errorf("%s\nprinted\n%s\nwant %s… and %s", commands[i], printed[i], want.command, want.output)
		}
	}
	end()
	if left, err := os.ReadDir(files); len(left) > 0 || err != nil {
		t.Errorf("the demo left %v, %v", left, err)
	}
}

// The printed rules are the rules of the running demo, and pass their tests.
func TestDemoRules(t *testing.T) {
	var out strings.Builder
	if code := run(t.Context(), []string{"demo", "--rules"}, &out, &out); code != 0 || out.String() != string(demo.Rules) {
		t.Errorf("exit %d, printed\n%s", code, &out)
	}
	dir, err := demo.NewDirectory()
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if written, err := os.ReadFile(filepath.Join(dir, demo.RulesFile)); err != nil || string(written) != out.String() {
		t.Errorf("%v: the rules of the running demo are\n%s", err, written)
	}
	for _, args := range [][]string{
		{"test", "../internal/demo/rules_test.yaml"}, {"fmt", "--check", "../internal/demo/rules.yaml", "../internal/demo/rules_test.yaml"}, {"check", filepath.Join(dir, "rules")},
	} {
		out.Reset()
		if code := run(t.Context(), args, &out, &out); code != 0 {
			t.Errorf("sluice %s: exit %d\n%s", strings.Join(args, " "), code, &out)
		}
	}
}

func TestUse(t *testing.T) {
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--help"}, 0, "sluice demo"},
		{[]string{"demo", "--help"}, 0, "sluice demo --listen"},
		{[]string{"--version"}, 0, "version"},
		{[]string{"dem"}, 2, `did you mean "demo"?`},
		{[]string{"demo", "now"}, 2, "now"},
		{[]string{"demo", "--listen", "nowhere"}, 2, "choose another address with --listen"},
	} {
		var out strings.Builder
		code := run(t.Context(), test.args, &out, &out)
		if code != test.code || !strings.Contains(out.String(), test.want) {
			t.Errorf("sluice %s: exit %d, printed\n%s\nwant exit %d and %q",
				strings.Join(test.args, " "), code, out.String(), test.code, test.want)
		}
	}
}
