package main

import (
	"bufio"
	"context"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// startDemo runs the demo on a free port and returns what it printed and its address.
func startDemo(t *testing.T) (guide, address string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out, in := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"demo", "--listen", "127.0.0.1:0"}, in, in)
		in.Close()
	}()
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "ctrl-C") {
		guide += lines.Text() + "\n"
	}
	t.Cleanup(func() {
		cancel()
		if code := <-ended; code != 0 {
			t.Errorf("the demo ended with %d", code)
		}
	})
	address = regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(guide)
	if address == "" {
		t.Fatalf("no address in what the demo printed:\n%s", guide)
	}
	return guide, address
}

// The commands that the demo prints do what it says, with the real curl.
func TestDemoCommands(t *testing.T) {
	guide, _ := startDemo(t)
	var commands []string
	for line := range strings.Lines(guide) {
		if line = strings.TrimSpace(line); strings.Contains(line, "curl") {
			commands = append(commands, line)
		}
	}
	if len(commands) != 4 {
		t.Fatalf("the demo printed %d commands:\n%s", len(commands), guide)
	}
	shell := func(command string) string {
		t.Helper()
		out, err := exec.Command("sh", "-c", command).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
		return strings.ReplaceAll(string(out), "\r", "")
	}
	for i, wants := range [][]string{
		{"HTTP/1.1 200 OK\n", "X-Ratelimit-Limit: 5\n", "X-Ratelimit-Remaining: 4\n", "\nhello\n"},
		{strings.Repeat("HTTP/1.1 200 OK\n", 4) + strings.Repeat("HTTP/1.1 429 Too Many Requests\n", 2)},
		{
			"HTTP/1.1 429 Too Many Requests\n", "Retry-After: ", "X-Ratelimit-Retry-After: ",
			"application/problem+json", `"status":429`,
		},
		{strings.Repeat("HTTP/1.1 401 Unauthorized\n", 3) + "HTTP/1.1 429 Too Many Requests\n"},
	} {
		out := shell(commands[i])
		for _, want := range wants {
			if !strings.Contains(out, want) {
				t.Errorf("%s\nprinted\n%s\nwithout %q", commands[i], out, want)
			}
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
		{[]string{"dem"}, 2, "Did you mean this?\n\tdemo"},
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
