package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// A redisServer is the server of one run, initially empty and without persistence.
type redisServer struct {
	addr    string
	dir     string
	cmd     *exec.Cmd
	control rueidis.Client // for commands outside the timed part
}

// startRedis starts a server, pinned to a CPU if one is given.
func startRedis(ctx context.Context, cpu string) (*redisServer, error) {
	addrs, err := freeAddrs(1)
	if err != nil {
		return nil, err
	}
	s := &redisServer{addr: addrs[0]}
	if s.dir, err = os.MkdirTemp("", "bench-redis-"); err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(s.addr)
	line := []string{
		"redis-server", "--port", port, "--bind", "127.0.0.1", "--dir", s.dir, "--save", "", "--appendonly", "no",
	}
	if cpu != "" {
		line = append([]string{"taskset", "-c", cpu}, line...)
	}
	s.cmd = exec.Command(line[0], line[1:]...)
	s.cmd.SysProcAttr = dieWithParent()
	if err := s.cmd.Start(); err != nil {
		os.RemoveAll(s.dir)
		return nil, fmt.Errorf("%w; on Debian: apt-get install redis-server", err)
	}
	if err := s.connect(ctx); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// connect waits until the server replies.
func (s *redisServer) connect(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		if s.control, err = s.client(func(o *rueidis.ClientOption) { o.AlwaysRESP2 = true }); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// client opens another client.
func (s *redisServer) client(change func(*rueidis.ClientOption)) (rueidis.Client, error) {
	o := rueidis.ClientOption{InitAddress: []string{s.addr}, DisableCache: true}
	if change != nil {
		change(&o)
	}
	return rueidis.NewClient(o)
}

func (s *redisServer) stop() {
	if s.control != nil {
		s.control.Close()
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	os.RemoveAll(s.dir)
}

// do sends a command to the server and returns the reply as text.
func (s *redisServer) do(args ...string) (string, error) {
	answer := s.control.Do(context.Background(), s.control.B().Arbitrary(args...).Build())
	if n, err := answer.AsInt64(); err == nil {
		return strconv.FormatInt(n, 10), nil
	}
	return answer.ToString()
}

// number returns a number of an INFO section.
func (s *redisServer) number(section, name string) (float64, error) {
	text, err := s.do("INFO", section)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+":"); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("INFO %s has no %s", section, name)
}

// usage is the work that a server has done so far.
type usage struct {
	cpu   time.Duration
	calls float64 // of the given commands
}

// usage returns the number of calls of some commands, including those of scripts.
func (s *redisServer) usage(commands []string) (u usage, err error) {
	user, err1 := s.number("cpu", "used_cpu_user")
	system, err2 := s.number("cpu", "used_cpu_sys")
	u.cpu = time.Duration((user + system) * float64(time.Second))
	stats, err3 := s.do("INFO", "commandstats")
	for _, name := range commands {
		if _, rest, ok := strings.Cut(stats, "cmdstat_"+name+":calls="); ok {
			calls, _, _ := strings.Cut(rest, ",")
			n, err := strconv.ParseFloat(calls, 64)
			u.calls += n
			err3 = errors.Join(err3, err)
		}
	}
	return u, errors.Join(err1, err2, err3)
}

// cpuPins are the CPUs for the client and for the server, or empty if there are too few to separate them.
type cpuPins struct{ client, server string }

func (p cpuPins) note() string {
	if p.server == "" {
		return "Redis and its clients ran on any CPU."
	}
	return fmt.Sprintf("Redis was pinned to CPU %s and its clients to %s.", p.server, p.client)
}

func findPins() cpuPins {
	status, err := os.ReadFile("/proc/self/status")
	if _, missing := exec.LookPath("taskset"); err != nil || missing != nil {
		return cpuPins{}
	}
	_, rest, _ := strings.Cut(string(status), "Cpus_allowed_list:")
	list, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
	var cpus []string
	for part := range strings.SplitSeq(list, ",") {
		low, high, isRange := strings.Cut(part, "-")
		first, err := strconv.Atoi(low)
		last := first
		if isRange && err == nil {
			last, err = strconv.Atoi(high)
		}
		if err != nil {
			return cpuPins{}
		}
		for n := first; n <= last; n++ {
			cpus = append(cpus, strconv.Itoa(n))
		}
	}
	if len(cpus) < 2 {
		return cpuPins{}
	}
	return cpuPins{client: strings.Join(cpus[:len(cpus)-1], ","), server: cpus[len(cpus)-1]}
}
