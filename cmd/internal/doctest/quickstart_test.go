//go:build unix

package doctest

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// upstreamAddress is the variable that makes this program the API behind the gateway of a quick start.
const upstreamAddress = "SLUICE_DOCTEST_UPSTREAM"

// serveUpstream is that API. It responds 201 to everything.
func serveUpstream(address string) error {
	return http.ListenAndServe(address, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }))
}

// quickStarts are the quick starts of README.md that are commands, with the text that the last response contains and no
// other, and the text of README.md about it.
var quickStarts = map[string]struct{ last, says string }{
	"service":                          {`"allowed":false,"status":429`, `"allowed":false`},
	"drop-in for envoyproxy/ratelimit": {`"overallCode":"OVER_LIMIT"`, `"overallCode":"OVER_LIMIT"`},
	"gateway":                          {"HTTP/1.1 429 Too Many Requests", "HTTP/1.1 429 Too Many Requests"},
}

// TestQuickStarts runs the commands of README.md's quick starts as they stand, each in a network of its own.
func TestQuickStarts(t *testing.T) {
	sections := regexp.MustCompile(`(?m)^## Quick start: (.*)\n`).FindAllStringSubmatchIndex(read(t, "README.md"), -1)
	text := read(t, "README.md")
	found := 0
	for i, at := range sections {
		name := text[at[2]:at[3]]
		body := text[at[1]:]
		if i+1 < len(sections) {
			body = text[at[1]:sections[i+1][0]]
		}
		script := regexp.MustCompile("(?s)```sh\n(.*?)```").FindStringSubmatch(body)
		if script == nil {
			continue // a program, see TestReadmeProgram
		}
		found++
		want, ok := quickStarts[name]
		if !ok || !strings.Contains(body, want.says) {
			t.Errorf("README.md: the quick start %q does not mention %q", name, want.says)
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := runAlone(t, script[1])
			if n := strings.Count(out, want.last); n != 1 {
				t.Errorf("%q occurs %d times, want 1, in\n%s", want.last, n, out)
			}
		})
	}
	if found != len(quickStarts) {
		t.Errorf("%d quick starts have commands, want %d", found, len(quickStarts))
	}
}

// TestFirstScreen runs the demo of README.md and the request below it.
func TestFirstScreen(t *testing.T) {
	t.Parallel()
	shown := blocks(t, "README.md", "console")
	if len(shown) != 2 {
		t.Fatalf("README.md has %d blocks of commands, want 2", len(shown))
	}
	demo, request := typed(shown[0].text)[0], typed(shown[1].text)[0]
	if demo[0] != "go run ./cmd/sluice demo" {
		t.Fatalf("README.md begins with %q", demo[0])
	}
	// The demo's own clients use no address of ours; without them the count is exact.
	out := runAlone(t, "sluice demo --no-traffic >guide.txt 2>demo.log &\n"+
		"until curl -so /dev/null http://127.0.0.1:8080/readyz; do sleep 0.1; done\nuntil [ -s guide.txt ]; do sleep 0.1; done\n"+
		request[0]+"\necho ===; cat guide.txt\n")
	response, guide, _ := strings.Cut(strings.ReplaceAll(out, "\r", ""), "===\n")
	response = regexp.MustCompile(`(Retry-After): 1[01]\n`).ReplaceAllString(response, "$1: 12\n") // on a slow computer
	if !shows(request[1], response) {
		t.Errorf("README.md shows\n%s\nthe responses are\n%s", request[1], response)
	}
	if !shows(demo[1], guide) {
		t.Errorf("README.md shows\n%s\nthe demo prints\n%s", demo[1], guide)
	}
}

// runAlone runs a script with the program, the examples and an API on port 9000, in a network of its own where that is
// possible, and returns its output.
func runAlone(t *testing.T, script string) string {
	t.Helper()
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "examples"), os.DirFS(filepath.Join(root, "examples"))); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	line := []string{"bash", "-c", upstreamAddress + `=127.0.0.1:9000 "$SELF" >/dev/null 2>&1 &` + "\n" + script}
	if exec.Command("unshare", "-rn", "ip", "link", "set", "lo", "up").Run() == nil {
		line[2] = "ip link set lo up\n" + line[2]
		line = slices.Concat([]string{"unshare", "-rn"}, line)
	} else if os.Getenv("CI") == "true" {
		t.Fatal("no network namespace can be made")
	}
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "SELF="+self, "TMPDIR="+dir, "NO_COLOR=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := os.Create(filepath.Join(dir, "out")) // not a pipe, which servers in the background would hold open
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	err = cmd.Run()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // servers in the background
	text, err2 := os.ReadFile(out.Name())
	if err = errors.Join(err, err2, ctx.Err()); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return string(text)
}
