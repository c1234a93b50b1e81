package interop

import (
	"bufio"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// statsd is a server that adds up the counters that a service sends, like a real one.
type statsd struct {
	port string

	mu       sync.Mutex // guards the fields below
	counters map[string]uint64
}

func listenStatsd(t testing.TB) *statsd {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	s := &statsd{port: port, counters: map[string]uint64{}}
	var done sync.WaitGroup
	t.Cleanup(done.Wait) // the service is killed before, which closes its connections
	done.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			done.Go(func() { s.read(conn) })
		}
	})
	t.Cleanup(func() { l.Close() })
	return s
}

// read adds received counters until the connection ends. Timers are counted.
func (s *statsd) read(conn net.Conn) {
	defer conn.Close()
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		name, rest, _ := strings.Cut(lines.Text(), ":")
		value, kind, _ := strings.Cut(rest, "|")
		add := uint64(1)
		switch kind {
		case "c":
			add, _ = strconv.ParseUint(value, 10, 64)
		case "ms":
			name += " (timings)"
		default:
			continue
		}
		s.mu.Lock()
		s.counters[name] += add
		s.mu.Unlock()
	}
}

// snapshot returns the service's own counters, without those of the Go runtime and the rule loader.
func (s *statsd) snapshot() map[string]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := map[string]uint64{}
	for name, n := range s.counters {
		if strings.HasPrefix(name, "ratelimit.service.") || strings.HasPrefix(name, "ratelimit_server.ShouldRateLimit") {
			own[name] = n
		}
	}
	return own
}
