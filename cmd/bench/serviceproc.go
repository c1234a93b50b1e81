package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sluiceproject/sluice/internal/testenv/tcptest"
)

// binariesVar is the environment variable with the folder of the servers' binaries, for child processes. The parent
// builds them once.
const binariesVar = "BENCH_BINARIES"

// sluiceVar is the environment variable with a Sluice binary to measure instead of building this tree.
const sluiceVar = "SLUICE_BINARY"

// repository is the folder in which Sluice is built, with the workspace; others are built outside of it.
const repository = "../.."

// buildServices builds the servers that the contenders of a run need, into a folder that done removes.
func buildServices(ctx context.Context, chosen []contender, picked []scenario, p *progress) (done func(), err error) {
	dir, err := os.MkdirTemp("", "bench-services-")
	if err != nil {
		return nil, err
	}
	done = func() { os.RemoveAll(dir) }
	os.Setenv(binariesVar, dir)
	built := map[string]bool{}
	for i := range chosen {
		sv := serviceNamed(chosen[i].name)
		if c := crowdNamed(chosen[i].name); c != nil {
			sv = &c.service
		}
		if p := proxyNamed(chosen[i].name); p != nil {
			sv = &p.service
		}
		if sv == nil || sv.module == "" || built[sv.module] || !needed(&chosen[i], picked) {
			continue
		}
		built[sv.module] = true
		if sv.module == repository && os.Getenv(sluiceVar) != "" {
			continue
		}
		p.show(0, 1, "building "+sv.name)
		cmd := exec.CommandContext(ctx, "go", "build", "-o", dir+string(filepath.Separator), sv.target)
		cmd.Dir = sv.module
		cmd.Env = append(os.Environ(), "GOWORK=off")
		if sv.module == repository {
			cmd.Env = append(os.Environ(), "GOWORK=") // the go command finds the workspace
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			done()
			return nil, fmt.Errorf("building %s: %w\n%s", sv.name, err, out)
		}
	}
	return done, nil
}

func needed(c *contender, picked []scenario) bool {
	for i := range picked {
		if c.runs(picked[i].name) {
			return true
		}
	}
	return false
}

// A serviceProcess is a running server, with its Redis if it has one.
type serviceProcess struct {
	of    *service
	addr  string
	at    place
	dir   string
	cmd   *exec.Cmd
	redis *redisServer
	said  bytes.Buffer
}

// A place contains the addresses and files of a server: its listeners, its Redis and its folder.
type place struct {
	grpc, http, third string // addresses
	redis             string
	dir               string
	over              bool // the load uses an exhausted key
}

func (p place) port(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}

func (sv *service) start(ctx context.Context, over bool) (s *serviceProcess, err error) {
	s = &serviceProcess{of: sv}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, s.said.String())
			s.stop()
		}
	}()
	if s.dir, err = os.MkdirTemp("", "bench-service-"); err != nil {
		return s, err
	}
	addrs, err := freeAddrs(3)
	if err != nil {
		return s, err
	}
	at := place{grpc: addrs[0], http: addrs[1], third: addrs[2], dir: s.dir, over: over}
	if sv.redis {
		if s.redis, err = startRedis(ctx, ""); err != nil {
			return s, err
		}
		at.redis = s.redis.addr
	}
	if s.cmd, err = sv.command(at); err != nil {
		return s, err
	}
	s.addr, s.at = at.grpc, at
	s.cmd.Stdout, s.cmd.Stderr = &s.said, &s.said
	s.cmd.SysProcAttr = dieWithParent()
	if err := s.cmd.Start(); err != nil {
		s.cmd = nil
		return s, err
	}
	return s, reachable(ctx, s.addr)
}

// connect waits until the server responds on all connections.
func (s *serviceProcess) connect(ctx context.Context, conns int) (*serviceClient, error) {
	c, err := dialService(s.addr, s.of.wire.method, conns)
	if err != nil {
		return nil, err
	}
	request := s.of.wire.encode([]string{"first"})
	for _, conn := range c.conns {
		err := retry(ctx, func() error {
			var reply []byte
			return conn.Invoke(ctx, c.method, &request, &reply)
		})
		if err != nil {
			c.close()
			return nil, fmt.Errorf("%w\n%s", err, s.said.String())
		}
	}
	return c, nil
}

func reachable(ctx context.Context, addr string) error {
	return retry(ctx, func() error {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
		}
		return err
	})
}

func retry(ctx context.Context, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// counted checks that Redis has at least this many keys: otherwise the service decided without Redis.
func (s *serviceProcess) counted(keys int) error {
	if s.redis == nil {
		return nil
	}
	text, err := s.redis.do("DBSIZE")
	if err != nil {
		return err
	}
	held, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	if held < keys {
		return failf("Redis has %d keys, want %d", held, keys)
	}
	return nil
}

func (s *serviceProcess) stop() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait() // it was killed
	}
	if s.redis != nil {
		s.redis.stop()
	}
	if s.dir != "" {
		os.RemoveAll(s.dir)
	}
}

// freeAddrs returns addresses that are reserved for this process until it ends.
func freeAddrs(n int) (addrs []string, err error) {
	for range n {
		addr, _, err := tcptest.Reserve()
		if err != nil {
			return nil, err
		}
		addrs = append(addrs, addr)
	}
	return addrs, nil
}

func (s *serviceProcess) cpu() time.Duration { return processTime(s.cmd) }

func (s *serviceProcess) redisCPU() time.Duration {
	if s.redis == nil {
		return 0
	}
	return processTime(s.redis.cmd)
}

// processTime returns the CPU time of a running process, as accounted by the kernel in 1/100 s.
func processTime(cmd *exec.Cmd) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
	if err != nil {
		return 0
	}
	// The name, in parentheses, may contain spaces.
	_, rest, _ := bytes.Cut(stat, []byte(") "))
	all := strings.Fields(string(rest))
	if len(all) < 13 {
		return 0
	}
	user, err1 := strconv.ParseInt(all[11], 10, 64)
	system, err2 := strconv.ParseInt(all[12], 10, 64)
	if err1 != nil || err2 != nil {
		return 0
	}
	return time.Duration(user+system) * (time.Second / 100)
}

func (s *serviceProcess) resident() float64 { return residentOf(s.cmd) }

func (s *serviceProcess) redisResident() float64 {
	if s.redis == nil {
		return 0
	}
	return residentOf(s.redis.cmd)
}

// residentOf returns the resident memory of a running process in megabytes.
func residentOf(cmd *exec.Cmd) float64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	var kilobytes float64
	if _, err := fmt.Sscan(rest, &kilobytes); err != nil {
		return 0
	}
	return kilobytes / 1024
}
