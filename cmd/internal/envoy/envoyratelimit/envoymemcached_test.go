package envoyratelimit

import (
	"bufio"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/internal/testenv/memcachetest"
)

// The keys and values in Memcached are those of the reference, counts of the reference are included, and each key is on the
// server that the client of the reference uses.
func TestEnvoyKeysInMemcached(t *testing.T) {
	servers := []*memcachetest.Server{memcachetest.Start(t), memcachetest.Start(t)}
	store := newEnvoyMemcached([]string{servers[0].Addr, servers[1].Addr}, nil, "pre_", 300)
	t.Cleanup(store.close)
	store.now = func() time.Time { return noon.Add(1500 * time.Millisecond) }
	s := &tested{t: t, Service: newServiceOn(t, store, `
  - {key: key, value: value, rate_limit: {unit: second, requests_per_unit: 10}}
  - {key: key2, descriptors: [{key: subkey2, rate_limit: {unit: hour, requests_per_unit: 10}}]}
  - {key: a, rate_limit: {unit: year, requests_per_unit: 2}}
`, "SLUICE_KEY_FORMAT=envoy")}
	at := noon.Unix()
	theirs := fmt.Sprint("pre_d_key2_value2_subkey2_subvalue2_", at)
	if got := tell(t, servers[store.pick(theirs)], "set "+theirs+" 0 100 1\r\n7\r\n"); got != "STORED" {
		t.Fatal(got)
	}
	long := strings.Repeat("x", 300)
	for _, tt := range []struct{ ask, want string }{
		{"key=value", "OK: OK 10/SECOND left 9"},
		{"key=value hits:3 | key2=value2,subkey2=subvalue2", "OK: OK 10/SECOND left 6 | OK 10/HOUR left 2"},
		{"key2=value2,subkey2=subvalue2 hits:3", "OVER_LIMIT: OVER_LIMIT 10/HOUR left 0"},
		{"key2=value2,subkey2=subvalue2 give:5", "OK: OK 10/HOUR left 4"},
		{"key2=other,subkey2=x give:5", "OK: OK 10/HOUR left 10"},
		{"a=1 hits:2", "OK: OK 2/YEAR left 0"},
		{"a=1", "OVER_LIMIT: OVER_LIMIT 2/YEAR left 0"},
		{"a=1 hits:0", "OVER_LIMIT: OVER_LIMIT 2/YEAR left 0"},
		{"a=" + long + " hits:2", "OK: OK 2/YEAR left 0"},
		{"a=" + long, "OVER_LIMIT: OVER_LIMIT 2/YEAR left 0"},
		{"a=" + long + "y", "OK: OK 2/YEAR left 1"},
	} {
		if got := s.ask(tt.ask); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.ask, got, tt.want)
		}
	}
	for key, want := range map[string]string{fmt.Sprint("pre_d_key_value_", at+1): "4", theirs: "6"} {
		got := tell(t, servers[store.pick(key)], "incr "+key+" 0\r\n")
		if got != want {
			t.Errorf("%s is %s, want %s", key, got, want)
		}
	}
	// CRC-32 modulo 2.
	if a, b := store.pick("pre_d_key_value_3"), store.pick("pre_d_key_value_4"); a != 0 || b != 1 {
		t.Errorf("keys are on servers %d and %d", a, b)
	}
}

// The value after a refund is valid for the reference too, which parses the whole value with strconv.ParseInt and counts from 0
// if that fails. Refunds that conflict with counts of other instances lose none of them.
func TestRefundInMemcached(t *testing.T) {
	server := memcachetest.Start(t)
	store := newEnvoyMemcached([]string{server.Addr}, nil, "", 300)
	t.Cleanup(store.close)
	store.now = func() time.Time { return noon }
	s := &tested{t: t, Service: newServiceOn(t, store, "  - {key: a, limit: 1000}\n", "SLUICE_KEY_FORMAT=envoy")}
	start := noon.Unix() / (365 * 86400) * (365 * 86400)
	theirs := func(value string) (string, int64) {
		t.Helper()
		raw := item(t, server, fmt.Sprintf("d_a_%s_%d", value, start))
		n, err := strconv.ParseInt(raw, 10, 32)
		if err != nil {
			t.Errorf("%q: %v", raw, err)
		}
		return raw, n
	}
	for i, tt := range []struct {
		count, give, want int
	}{{10, 1, 9}, {100, 99, 1}, {100, 91, 9}, {9, 9, 0}, {12, 500, 0}, {999, 1, 998}} {
		value := strconv.Itoa(i)
		s.ask(fmt.Sprintf("a=%s hits:%d", value, tt.count))
		if got, want := s.ask(fmt.Sprintf("a=%s give:%d", value, tt.give)), fmt.Sprintf("OK: OK 1000/YEAR left %d", 1000-tt.want); got != want {
			t.Errorf("%d less %d: got %s, want %s", tt.count, tt.give, got, want)
		}
		if raw, n := theirs(value); n != int64(tt.want) {
			t.Errorf("%d less %d is %q, want %d", tt.count, tt.give, raw, tt.want)
		}
	}
	// A number padded by a refund of the reference.
	key := fmt.Sprint("d_a_padded_", start)
	tell(t, server, "set "+key+" 0 100 3\r\n9  \r\n")
	if got := s.ask("a=padded give:2"); got != "OK: OK 1000/YEAR left 993" {
		t.Error(got)
	}
	theirs("padded")
	s.ask("a=busy hits:100")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { s.ask("a=busy give:3") })
		wg.Go(func() { s.ask("a=busy hits:2") })
	}
	wg.Wait()
	if raw, n := theirs("busy"); n != 100-8*3+8*2 {
		t.Errorf("the value is %q", raw)
	}
}

// The number of round trips does not depend on the number of descriptors, nor on whether their counts exist: commands to a
// server are pipelined.
func TestMemcachedRoundTrips(t *testing.T) {
	servers := []*memcachetest.Server{memcachetest.Start(t), memcachetest.Start(t)}
	store := newEnvoyMemcached([]string{servers[0].Addr, servers[1].Addr}, nil, "", 300)
	t.Cleanup(store.close)
	s := &tested{t: t, Service: newServiceOn(t, store, "  - {key: a, limit: 2}\n", "SLUICE_KEY_FORMAT=envoy", "SLUICE_STORE_TIMEOUT=10s")}
	const n = 1000
	for _, step := range []struct {
		suffix, want string
		most         int64 // maximum round trips per server and batch of descriptors
	}{
		{"", "OK 2/YEAR left 1", 2},
		{"", "OK 2/YEAR left 0", 1},
		{" give:1", "OK 2/YEAR left 1", 2},
		{"", "OK 2/YEAR left 0", 1},
		{"", "OVER_LIMIT 2/YEAR left 0", 1},
	} {
		var ask, want []string
		for i := range n {
			ask, want = append(ask, fmt.Sprint("a=", i, step.suffix)), append(want, step.want)
		}
		var before [2]int64
		for i, server := range store.servers {
			before[i] = server.trips.Load()
		}
		if _, got, _ := strings.Cut(s.ask(strings.Join(ask, " | ")), ": "); got != strings.Join(want, " | ") {
			t.Errorf("%q: got %.200s, want each %s", step.suffix, got, step.want)
		}
		for i, server := range store.servers {
			if trips := server.trips.Load() - before[i]; trips > step.most*(n/maxMemcachedBatch) {
				t.Errorf("%q: %d round trips to server %d, want at most %d", step.suffix, trips, i, step.most*(n/maxMemcachedBatch))
			}
		}
	}
}

// item returns the value of an item.
func item(t *testing.T, server *memcachetest.Server, key string) string {
	t.Helper()
	conn, err := net.Dial("tcp", server.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("get " + key + "\r\n")); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(conn)
	if head, err := lines.ReadString('\n'); err != nil || !strings.HasPrefix(head, "VALUE ") {
		t.Fatalf("get %s: %q, %v", key, head, err)
	}
	line, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(line, "\r\n")
}

// After a restart of the server at most one call fails, and closed connections are replaced.
func TestEnvoyMemcachedRestart(t *testing.T) {
	server := memcachetest.Start(t)
	store := newEnvoyMemcached([]string{server.Addr}, nil, "", 0)
	t.Cleanup(store.close)
	if err := store.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	for range 2 {
		if err := store.Ping(t.Context()); err == nil {
			t.Error("a stopped server replies")
		}
	}
	server.Restart()
	if err := store.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

// tell sends a command to a server and returns the reply.
func tell(t *testing.T, server *memcachetest.Server, command string) string {
	t.Helper()
	conn, err := net.Dial("tcp", server.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(command)); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}
