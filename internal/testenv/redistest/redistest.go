// Package redistest starts real Redis servers for tests.
//
// A server listens on a free port of the loopback interface, stores nothing on disk except the directory of its socket,
// and is killed when the test binary ends in any way.
package redistest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/internal/testenv/tcptest"
)

// Server is a redis-server process.
type Server struct {
	Addr string // host:port

	dir      string
	program  string
	args     []string
	sentinel string // configuration file of a sentinel
	cmd      *exec.Cmd
	done     chan struct{} // closed when the process has ended
	release  func()        // releases Addr; nil for a sentinel, whose test releases it
}

// URL returns the URL of the server.
func (s *Server) URL() string { return "redis://" + s.Addr }

var shared struct {
	once   sync.Once
	server *Server
	err    error
}

// Shared returns a server that all tests of the binary share, and starts it on the first call. Tests that share it must
// use different key prefixes. Call [Run] from TestMain so that it is stopped.
func Shared(t testing.TB) *Server {
	t.Helper()
	requireRedis(t)
	shared.once.Do(func() { shared.server, shared.err = start(redisServer) })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server
}

// Run runs the tests of the binary and stops the shared server.
func Run(m *testing.M) int {
	code := m.Run()
	if shared.server != nil {
		shared.server.Kill()
		os.RemoveAll(shared.server.dir)
	}
	return code
}

// Start starts a server for the test, with additional arguments for redis-server. It is stopped at the end of the test.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	requireRedis(t)
	return startProgram(t, redisServer, args)
}

// StartValkey starts a Valkey server for the test, or skips the test if Valkey is not installed, because not every
// distribution has it. scripts/install-test-deps.sh installs it where possible.
func StartValkey(t testing.TB, args ...string) *Server {
	t.Helper()
	if _, err := exec.LookPath(valkeyServer); err != nil {
		t.Skip("valkey-server is not installed; Debian has it in its backports")
	}
	return startProgram(t, valkeyServer, args)
}

const (
	redisServer  = "redis-server"
	valkeyServer = "valkey-server"
)

func startProgram(t testing.TB, program string, args []string) *Server {
	t.Helper()
	s, err := start(program, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Kill()
		s.release()
		os.RemoveAll(s.dir)
	})
	return s
}

// requireRedis skips a test if redis-server is not installed, or fails it in CI, where no test may be skipped.
func requireRedis(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath(redisServer); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("redis-server is not installed; on Debian: apt-get install redis-server")
		}
		t.Skip("redis-server is not installed; on Debian: apt-get install redis-server")
	}
}

func start(program string, args ...string) (*Server, error) {
	dir, err := os.MkdirTemp("", "redistest")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, program: program, args: args}
	if s.Addr, s.release, err = tcptest.Reserve(); err == nil {
		if err = s.Restart(); err == nil {
			return s, nil
		}
		s.release()
	}
	os.RemoveAll(dir)
	return nil, err
}

// Restart starts a killed process again, empty, on the same address.
func (s *Server) Restart() error {
	_, port, _ := net.SplitHostPort(s.Addr)
	args := append([]string{
		"--port", port, "--bind", "127.0.0.1", "--dir", s.dir, "--save", "", "--appendonly", "no", "--databases", "2",
	}, s.args...)
	if s.sentinel != "" {
		args = []string{s.sentinel, "--sentinel", "--port", port, "--bind", "127.0.0.1", "--dir", s.dir}
	}
	s.cmd = exec.Command(s.program, args...)
	s.cmd.SysProcAttr = dieWithParent()
	output, err := s.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	s.done = make(chan struct{})
	state := make(chan error, 1)
	go s.run(output, state)
	return <-state
}

// run starts the process and waits for its end. It sends one message: nil when the server is ready, or the error.
func (s *Server) run(output io.Reader, state chan<- error) {
	defer close(s.done)
	// The kernel ties the process to the thread that started it, so that thread must not end before.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := s.cmd.Start(); err != nil {
		state <- fmt.Errorf("redistest: %w", err)
		return
	}
	ready, said := false, ""
	for lines := bufio.NewScanner(output); lines.Scan(); {
		switch line := lines.Text(); {
		case ready:
		case strings.Contains(line, "Ready to accept connections"), strings.Contains(line, "+monitor master"):
			ready = true
			state <- nil
		default:
			said += "\n" + line
		}
	}
	err := s.cmd.Wait()
	if !ready {
		state <- fmt.Errorf("redistest: %s ended: %w%s", s.program, err, said)
	}
}

// Kill kills the process, like a power failure.
func (s *Server) Kill() {
	s.cmd.Process.Kill()
	<-s.done
}

// Do sends one command on its own connection and returns the reply as text, with one line per array element. It is for
// inspecting a server.
func (s *Server) Do(command ...string) (string, error) {
	dialer := net.Dialer{Timeout: 5 * time.Second}
	conn, err := dialer.DialContext(context.Background(), "tcp", s.Addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(command))
	for _, part := range command {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(part), part)
	}
	if _, err := conn.Write([]byte(b.String())); err != nil {
		return "", err
	}
	return readReply(bufio.NewReader(conn))
}

func readReply(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimRight(line, "\r\n")
	if line == "" {
		return "", errors.New("redistest: empty reply")
	}
	rest := line[1:]
	switch line[0] {
	case '-':
		return "", errors.New(rest)
	case '$':
		n, err := strconv.Atoi(rest)
		if err != nil || n < 0 {
			return "", err
		}
		buf := make([]byte, n+2)
		_, err = io.ReadFull(r, buf)
		return string(buf[:n]), err
	case '*':
		n, err := strconv.Atoi(rest)
		if err != nil {
			return "", err
		}
		parts := make([]string, 0, max(0, n))
		for range n {
			part, err := readReply(r)
			if err != nil {
				return "", err
			}
			parts = append(parts, part)
		}
		return strings.Join(parts, "\n"), nil
	}
	return rest, nil
}
