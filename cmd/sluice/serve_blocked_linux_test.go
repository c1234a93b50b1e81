package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// stuck is the standard error of a program, which the test reads only on demand.
type stuck struct {
	*bufio.Reader
	write *os.File
}

func newStuck(t *testing.T) *stuck {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(r.Close(), w.Close()) })
	if err := r.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return &stuck{bufio.NewReader(r), w}
}

// fill writes line breaks until the pipe is full, so that the next write blocks.
func (s *stuck) fill(t *testing.T) {
	t.Helper()
	fd, err := syscall.Open(fmt.Sprintf("/proc/self/fd/%d", s.write.Fd()), syscall.O_WRONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	for size := 4096; size > 0; {
		if _, err := syscall.Write(fd, []byte(strings.Repeat("\n", size))); err != nil {
			size /= 2
		}
	}
}

// until reads lines until one matches.
func (s *stuck) until(t *testing.T, pattern string) (match []string, before []string) {
	t.Helper()
	for r := regexp.MustCompile(pattern); ; {
		line, err := s.ReadString('\n')
		if err != nil {
			t.Fatalf("%v: no line matches %s:\n%s", err, pattern, strings.Join(before, ""))
		}
		if match = r.FindStringSubmatch(line); match != nil {
			return match, before
		}
		before = append(before, line)
	}
}

// startStuck runs the program with both standard output and standard error blocked.
func startStuck(t *testing.T, s *stuck, env []string, args ...string) (cmd *exec.Cmd, ended chan error) {
	t.Helper()
	cmd = exec.Command(os.Args[0], args...)
	cmd.Env = append(append(os.Environ(), asProgram+"=1", "GORACE=atexit_sleep_ms=0"), env...)
	cmd.Stdout, cmd.Stderr = s.write, s.write
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended = make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd, ended
}

// endsWithin sends SIGTERM and fails the test if the program does not exit in time.
func endsWithin(t *testing.T, cmd *exec.Cmd, ended chan error, d time.Duration) {
	t.Helper()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("%v exits with %v", cmd.Args[1:], err)
		}
	case <-time.After(d):
		t.Errorf("%v is still running %v after SIGTERM", cmd.Args[1:], d)
	}
}

// While standard error and standard output are blocked, every request gets a response. When they are read again, the lines in
// the log plus the number of dropped lines that it reports equal the logged lines, and the metric has the same number. If they
// are blocked at the shutdown, the service still exits in time.
func TestServeOutputBlocked(t *testing.T) {
	const timeout = 4 * time.Second
	rules := rulesDir(t, "  - {key: a, descriptors: [{key: b, descriptors: [{key: c, rate_limit: {unit: year, requests_per_unit: 1}}]}]}\n")
	file := t.TempDir() + "/sluice.yaml"
	write(t, file, fmt.Sprintf("rules: {paths: [%q]}\nlogging: {denials_per_second: 1000, keys: plain}\n"+
		"listeners: {drain: {timeout: %v}, admin: {address: '127.0.0.1:0'}, grpc: {address: '127.0.0.1:0'}, http: {address: '127.0.0.1:0'}}\n", rules, timeout))
	out := newStuck(t)
	cmd, ended := startStuck(t, out, nil, "serve", "--config", file)
	at, _ := out.until(t, served.String())
	out.fill(t)

	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	long := strings.Repeat(`\u0001`, 128) // logged as \\x01
	body := fmt.Sprintf(`{"domain":"d","descriptors":[[{"key":"a","value":"%[1]s"},{"key":"b","value":"%[1]s"},{"key":"c","value":"%[1]s"}]]}`, long)
	var denied atomic.Int64
	flood := func(n int) {
		var callers sync.WaitGroup
		for range 8 {
			callers.Go(func() {
				for range n / 8 {
					resp, err := client.Post("http://"+at[2]+"/v1/check", "application/json", strings.NewReader(body))
					if err != nil {
						t.Errorf("while the log is blocked: %v", err)
						return
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
					if resp.StatusCode == http.StatusTooManyRequests {
						denied.Add(1)
					}
				}
			})
		}
		callers.Wait()
	}
	flood(800) // fewer than denials_per_second, so that each denial is a line
	counted := func() string {
		resp, err := client.Get("http://" + at[3] + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		metrics, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		m := regexp.MustCompile(`(?m)^sluice_log_dropped_lines_total (\d+)$`).FindSubmatch(metrics)
		if err != nil || m == nil || string(m[1]) == "0" {
			t.Fatalf("%d denied, %v: %s dropped lines", denied.Load(), err, m)
		}
		return string(m[1])
	}
	counted()
	lost, before := out.until(t, `level=ERROR .* dropped_lines=(\d+)\n`)
	n, err := strconv.ParseInt(lost[1], 10, 64)
	if m := counted(); err != nil || lost[1] != m { // compared only now, because a line may be dropped after the first reading
		t.Errorf("the log reports %s dropped lines, the metric %s: %v", lost[1], m, err)
	}
	first, all := strings.Join(before, ""), denied.Load()
	write(t, rules+"/other.yaml", "domain: other\ndescriptors: [{key: k, rate_limit: {unit: year, requests_per_unit: 1}}]\n") // its line in the log follows the others
	_, before = out.until(t, "rules reloaded")
	text := first + strings.Join(before, "")
	written := int64(strings.Count(text, "msg=denied "))
	// One other line may be among the dropped ones: the one that reports the full buffer.
	other := written + n - all
	if other != 0 && (other != 1 || strings.Contains(text, "bound=log_buffer")) {
		t.Errorf("%d lines of %d, %d dropped", written, all, n)
	}
	t.Logf("%d lines: %d written, %d lost", all, written, n)

	out.fill(t)
	flood(80)
	endsWithin(t, cmd, ended, timeout)
}

// The service keeps running when the reader of its outputs exits, such as a log shipper that restarts.
func TestServeOutputClosed(t *testing.T) {
	rules := rulesDir(t, "  - {key: k, rate_limit: {unit: year, requests_per_unit: 1}}\n")
	file := t.TempDir() + "/sluice.yaml"
	write(t, file, fmt.Sprintf("rules: {paths: [%q]}\nlogging: {denials_per_second: 1000}\n"+
		"listeners: {admin: {address: '127.0.0.1:0'}, grpc: {address: '127.0.0.1:0'}, http: {address: '127.0.0.1:0'}}\n", rules))
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out := &stuck{bufio.NewReader(r), w}
	cmd, ended := startStuck(t, out, nil, "serve", "--config", file)
	w.Close()
	at, _ := out.until(t, served.String())
	r.Close()
	client := &http.Client{Timeout: 10 * time.Second}
	denied := 0
	for range 20 {
		resp, err := client.Post("http://"+at[2]+"/v1/check", "application/json", strings.NewReader(`{"domain":"d","descriptors":[[{"key":"k","value":"v"}]]}`))
		if err != nil {
			t.Fatalf("after the reader of the log exited: %v", err)
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusTooManyRequests {
			denied++
		}
	}
	lost := regexp.MustCompile(`(?m)^sluice_log_dropped_lines_total [1-9]`)
	for deadline := time.Now().Add(10 * time.Second); ; {
		resp, err := client.Get("http://" + at[3] + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		metrics, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if lost.Match(metrics) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d were denied, and no line was dropped", denied)
		}
	}
	endsWithin(t, cmd, ended, 10*time.Second)
}

// The other servers exit too if their outputs are blocked from the start, and so does one that cannot start.
func TestOutputBlockedFromTheStart(t *testing.T) {
	rules := rulesDir(t, "  - {key: user, rate_limit: {unit: year, requests_per_unit: 1}}\n")
	for name, c := range map[string]struct {
		ready string
		env   []string
		args  []string
	}{
		"demo": {ready: "ctrl-C stops", args: []string{"demo", "--listen", "127.0.0.1:0"}},
		"ratelimit": {
			ready: "listening", args: []string{"ratelimit"},
			env: []string{"BACKEND_TYPE=memory", "USE_STATSD=false", "RUNTIME_ROOT=" + rules, "RUNTIME_WATCH_ROOT=false", "PORT=0", "GRPC_PORT=0", "DEBUG_PORT=0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := newStuck(t)
			cmd, ended := startStuck(t, out, c.env, c.args...)
			out.until(t, c.ready)
			out.fill(t)
			endsWithin(t, cmd, ended, 10*time.Second)
		})
	}
	t.Run("failing", func(t *testing.T) {
		out := newStuck(t)
		out.fill(t)
		_, ended := startStuck(t, out, nil, "serve", "--config", t.TempDir()+"/none.yaml")
		select {
		case err := <-ended:
			if err == nil {
				t.Error("the start does not fail")
			}
		case <-time.After(20 * time.Second):
			t.Error("the program is still running")
		}
	})
}
