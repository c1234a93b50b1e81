package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// sendThrough sends n requests through the gateway and returns after the last response.
func sendThrough(t *testing.T, address string, n int) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	var senders sync.WaitGroup
	for i := range 8 {
		senders.Go(func() {
			for j := i; j < n; j += 8 {
				resp, err := client.Get(fmt.Sprintf("http://%s/%d", address, j))
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		})
	}
	senders.Wait()
}

// missing returns the requests without a line in an access log.
func missing(log string, n int) (none []string) {
	for i := range n {
		if path := fmt.Sprintf(`"path":"/%d"`, i); strings.Count(log, path) != 1 {
			none = append(none, path)
		}
	}
	return none
}

// Every request with a response before SIGTERM has a line in the access log, in a file and in a pipe that is read only at the
// shutdown. The last line of the log reports the end of the service.
func TestServeLastLines(t *testing.T) {
	const n = 400 // more lines than a pipe holds
	api := application(t)
	gateway := fmt.Sprintf("{upstreams: {api: {servers: %q}}, routes: [{path: '/{x}', upstream: api}], access_log: {file: %%q}}", api.URL)
	t.Run("file", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "access.log")
		p, address := startGateway(t, fmt.Sprintf(gateway, file), "rules: []", "")
		sendThrough(t, address, n)
		p.signal(t, syscall.SIGTERM)
		<-p.ended
		b, err := os.ReadFile(file)
		if none := missing(string(b), n); err != nil || len(none) > 0 {
			t.Errorf("%v: no lines for %v", err, none)
		}
		if log := p.log(); !strings.Contains(log[len(log)-1], "msg=stopped") {
			t.Errorf("the last line is %s", log[len(log)-1])
		}
	})
	t.Run("pipe", func(t *testing.T) {
		directory := t.TempDir()
		write(t, filepath.Join(directory, "rules.yaml"), "rules: []")
		file := filepath.Join(directory, "sluice.yaml")
		write(t, file, fmt.Sprintf("listeners: {grpc: {address: off}, http: {address: off}, admin: {address: off}, gateway: {address: '127.0.0.1:0'}}\n"+
			"rules: {paths: [%q]}\ngateway: %s\n", filepath.Join(directory, "rules.yaml"), fmt.Sprintf(gateway, "-")))
		cmd := exec.Command(os.Args[0], "serve", "--config", file)
		cmd.Env = append(os.Environ(), asProgram+"=1", "GORACE=atexit_sleep_ms=0")
		stdout, err1 := cmd.StdoutPipe()
		stderr, err2 := cmd.StderrPipe()
		if err := errors.Join(err1, err2, cmd.Start()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		log := bufio.NewReader(stderr)
		until := func(text string) string {
			t.Helper()
			for {
				line, err := log.ReadString('\n')
				if err != nil {
					t.Fatalf("%v: no line with %s", err, text)
				}
				if strings.Contains(line, text) {
					return line
				}
			}
		}
		sendThrough(t, gatewayServed.FindStringSubmatch(until("msg=serving"))[1], n)
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		until("msg=stopped")
		got, err := io.ReadAll(stdout)
		rest, err2 := io.ReadAll(log)
		if err := errors.Join(err, err2, cmd.Wait()); err != nil || len(rest) > 0 {
			t.Errorf("exit with %v and %s", err, rest)
		}
		if none := missing(string(got), n); len(none) > 0 {
			t.Errorf("no lines for %v", none)
		}
	})
}

// The exit code is that of a second signal even if the graceful shutdown finishes first, because the access log blocks. Dropped
// lines are logged.
func TestServeSecondSignalBlockedLog(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(fifo, os.O_RDONLY|syscall.O_NONBLOCK, 0) // the test reads nothing from it
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	api := application(t)
	p := launchGateway(t, "{address: '127.0.0.1:0'}, drain: {timeout: 4s}",
		fmt.Sprintf("{upstreams: {api: {servers: %q}}, routes: [{path: '/{x}', upstream: api}], access_log: {file: %q}}", api.URL, fifo), "rules: []", "")
	sendThrough(t, gatewayServed.FindStringSubmatch(p.await(t, "msg=serving"))[1], 600) // more lines than a FIFO holds
	p.signal(t, syscall.SIGTERM)
	p.await(t, "msg=draining")
	p.signal(t, syscall.SIGTERM)
	<-p.ended
	log := strings.Join(p.log(), "\n")
	if code := p.cmd.ProcessState.ExitCode(); code != term.ExitFindings || !strings.Contains(log, "second signal") || !strings.Contains(log, "dropped_lines=") {
		t.Errorf("exit %d after\n%s", code, log)
	}
	p.err = nil // the exit code is expected
}

// A second signal stops the service at once, even with a request in flight, and buffered lines are written.
func TestServeSecondSignal(t *testing.T) {
	inside, release := make(chan struct{}), make(chan struct{})
	api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(inside)
			<-release
		}
	}))
	defer api.Close()
	defer close(release)
	file := filepath.Join(t.TempDir(), "access.log")
	p := launchGateway(t, "{address: '127.0.0.1:0'}, drain: {timeout: 10m}",
		fmt.Sprintf("{upstreams: {api: {servers: %q}}, routes: [{path: '/{x}', upstream: api}], access_log: {file: %q}}", api.URL, file), "rules: []", "")
	address := gatewayServed.FindStringSubmatch(p.await(t, "msg=serving"))[1]
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET /slow HTTP/1.1\r\nHost: h\r\n\r\n")
	<-inside
	sendThrough(t, address, 20)
	p.signal(t, syscall.SIGTERM)
	p.await(t, "msg=draining")
	p.signal(t, syscall.SIGTERM)
	<-p.ended
	b, err := os.ReadFile(file)
	if none := missing(string(b), 20); err != nil || len(none) > 0 {
		t.Errorf("%v: no lines for %v", err, none)
	}
	log := p.log()
	if code := p.cmd.ProcessState.ExitCode(); code != term.ExitFindings || len(log) == 0 || !strings.Contains(log[len(log)-1], "second signal") {
		t.Errorf("exit %d after\n%s", code, strings.Join(log, "\n"))
	}
	p.err = nil // the exit code is expected
}

// The log of a failed start is complete.
func TestServeLastLinesOfFailedStart(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	directory := t.TempDir()
	write(t, filepath.Join(directory, "rules.yaml"), "rules: [{name: all, limit: 1/s}, {name: all2, per: header:X-User, limit: 100000/s}]")
	file := filepath.Join(directory, "sluice.yaml")
	write(t, file, fmt.Sprintf("rules: {paths: [%q]}\nlisteners: {grpc: {address: %q}, http: {address: off}, admin: {address: off}}\n",
		filepath.Join(directory, "rules.yaml"), taken.Addr()))
	code, _, stderr := sluiceRun(t, "serve", "--config", file)
	if code != term.ExitWrong || !strings.Contains(stderr, "level=WARN") || !strings.Contains(stderr, "address already in use") {
		t.Errorf("exit %d:\n%s", code, stderr)
	}
}
