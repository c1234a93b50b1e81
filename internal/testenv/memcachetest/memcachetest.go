// Package memcachetest starts real Memcached servers for tests.
//
//	server := memcachetest.Start(t)
//	store, err := memcachestore.Open(memcachestore.Config{Addrs: []string{server.Addr}})
//
// A server listens on a free port of the loopback interface, or on a Unix socket, and is stopped at the end of the
// test. If Memcached is not installed, the test is skipped, or fails if the environment has CI=true.
package memcachetest

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/internal/testenv/tcptest"
)

// Server is a running Memcached.
type Server struct {
	Addr string // host:port, or the path of a Unix socket

	t    testing.TB
	args []string
	log  bytes.Buffer // output of the process; read after it has ended

	mu   sync.Mutex // guards cmd
	cmd  *exec.Cmd  // nil when it does not run
	gone chan error // receives the error with which the process ended
}

// Start starts a server on a free port, with additional Memcached options.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	need(t)
	s := &Server{t: t, Addr: tcptest.FreeAddress(t)}
	host, port, _ := net.SplitHostPort(s.Addr)
	s.args = append([]string{"-l", host, "-p", port, "-U", "0"}, args...)
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	return s
}

// StartUnix starts a server on a Unix socket.
func StartUnix(t testing.TB, args ...string) *Server {
	t.Helper()
	need(t)
	dir, err := os.MkdirTemp("", "memcachetest") // t.TempDir can be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &Server{t: t, Addr: filepath.Join(dir, "socket")}
	s.args = append([]string{"-s", s.Addr}, args...)
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	return s
}

// need skips the test if Memcached is not installed.
func need(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("memcached"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("memcached is not installed, and with CI=true no test may be skipped: apt-get install memcached")
		}
		t.Skip("memcached is not installed: apt-get install memcached")
	}
}

// start starts the process and returns when it replies.
func (s *Server) start() error {
	args := s.args
	if os.Geteuid() == 0 {
		args = append([]string{"-u", "root"}, args...) // as root it requires this option
	}
	cmd := exec.Command("memcached", args...)
	cmd.Stdout, cmd.Stderr = &s.log, &s.log
	if err := cmd.Start(); err != nil {
		return err
	}
	gone := make(chan error, 1)
	go func() { gone <- cmd.Wait() }()
	s.mu.Lock()
	s.cmd, s.gone = cmd, gone
	s.mu.Unlock()
	return s.await(gone)
}

// patience is the maximum time for a server to start.
const patience = 20 * time.Second

func (s *Server) await(gone chan error) error {
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	late := time.After(patience)
	for {
		if s.answers() {
			return nil
		}
		select {
		case err := <-gone:
			s.mu.Lock()
			s.cmd = nil
			s.mu.Unlock()
			return fmt.Errorf("memcached %s: %v: %s", strings.Join(s.args, " "), err, s.log.String())
		case <-late:
			s.Kill()
			return fmt.Errorf("memcached %s does not reply after %v", strings.Join(s.args, " "), patience)
		case <-again.C:
		}
	}
}

// answers reports whether the server can be reached. A server with TLS need only accept a connection.
func (s *Server) answers() bool {
	c, err := s.dial()
	if err != nil {
		return false
	}
	defer func() { _ = c.Close() }()
	for _, a := range s.args {
		if a == "-Z" {
			return true
		}
	}
	line, err := ask(c, "mn\r\n")
	return err == nil && line == "MN"
}

func (s *Server) dial() (net.Conn, error) {
	network := "tcp"
	if strings.HasPrefix(s.Addr, "/") {
		network = "unix"
	}
	c, err := net.DialTimeout(network, s.Addr, patience)
	if err != nil {
		return nil, err
	}
	return c, c.SetDeadline(time.Now().Add(patience))
}

func ask(c net.Conn, command string) (string, error) {
	if _, err := c.Write([]byte(command)); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSuffix(line, "\r\n"), err
}

// Ask sends a command and returns the first line of the reply.
func (s *Server) Ask(command string) string {
	s.t.Helper()
	c, err := s.dial()
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	line, err := ask(c, command+"\r\n")
	if err != nil {
		s.t.Fatalf("%s: %v", command, err)
	}
	return line
}

// Stats returns the output of a stats command: general statistics, or those about "items", "slabs" and so on.
func (s *Server) Stats(about string) map[string]string {
	s.t.Helper()
	c, err := s.dial()
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := fmt.Fprintf(c, "%s\r\n", strings.TrimSpace("stats "+about)); err != nil {
		s.t.Fatal(err)
	}
	stats := map[string]string{}
	for lines := bufio.NewScanner(c); lines.Scan(); {
		words := strings.SplitN(lines.Text(), " ", 3)
		if words[0] != "STAT" || len(words) < 3 {
			break
		}
		stats[words[1]] = words[2]
	}
	return stats
}

// Kill kills the server. It may be called twice.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	<-s.gone
	s.cmd = nil
}

// Restart starts a killed server again, empty, on the same address.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	if err := s.start(); err != nil {
		s.t.Fatal(err)
	}
}
