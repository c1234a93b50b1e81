package envoyratelimit

import (
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluiceproject/sluice/cmd/internal/testenv/rlstest"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
	"github.com/sluiceproject/sluice/internal/testenv/tcptest"
)

// envoyOn returns a store with the keys of the reference, at noon.
func envoyOn(t *testing.T, server *redistest.Server, prefix string) *envoyKeys {
	t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr}, DisableCache: true, ForceSingleClient: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return &envoyKeys{client: client, prefix: prefix, jitter: 300, now: func() time.Time { return noon.Add(1500 * time.Millisecond) }}
}

// The keys, their values and their TTLs are those of the reference.
func TestEnvoyKeys(t *testing.T) {
	server := redistest.Start(t)
	store := envoyOn(t, server, "pre_")
	s := &tested{t: t, Service: newServiceOn(t, store, `
  - {key: key, value: value, rate_limit: {unit: second, requests_per_unit: 10}}
  - {key: key2, descriptors: [{key: subkey2, rate_limit: {unit: hour, requests_per_unit: 10}}]}
  - {key: path, value: "files/*", share_threshold: true, rate_limit: {unit: day, requests_per_unit: 10}}
`, "SLUICE_KEY_FORMAT=envoy")}
	for _, ask := range []string{
		"key=value", "key=value hits:3 | key2=value2,subkey2=subvalue2", "path=files/a", "path=files/b hits:4", "path=files/b give:3",
		"key=value hits:0 limit:3/MINUTE", "path=files/c give:1",
	} {
		if got := s.ask(ask); !strings.HasPrefix(got, "OK") {
			t.Errorf("%s: %s", ask, got)
		}
	}
	at := noon.Unix()
	for key, want := range map[string]struct {
		value string
		least int // minimum TTL in seconds
	}{
		fmt.Sprint("pre_d_key_value_", at+1):                   {"4", 1},
		fmt.Sprint("pre_d_key2_value2_subkey2_subvalue2_", at): {"1", 3600},
		fmt.Sprint("pre_d_path_files/*_", at-43200):            {"1", 86400},
		fmt.Sprint("pre_d_key_value_", at):                     {"0", 60},
	} {
		got, err := server.Do("GET", key)
		if err != nil || got != want.value {
			t.Errorf("%s is %q, %v, want %s", key, got, err, want.value)
		}
		ttl, err := server.Do("TTL", key)
		if n, _ := strconv.Atoi(ttl); err != nil || n < want.least-5 || n >= want.least+300 {
			t.Errorf("the TTL of %s is %s s, %v, want %d and up to 300 more", key, ttl, err, want.least)
		}
	}
	if n, _ := server.Do("DBSIZE"); n != "4" {
		keys, _ := server.Do("KEYS", "*")
		t.Errorf("there are %s keys:\n%s", n, keys)
	}
	for range 3 {
		s.ask("path=files/d give:100") // not below 0
	}
	if got, _ := server.Do("GET", fmt.Sprint("pre_d_path_files/*_", at-43200)); got != "0" {
		t.Errorf("after a refund beyond 0 the count is %s", got)
	}
}

// Another program with the commands of the reference and this one together admit the limit.
func TestMixedFleet(t *testing.T) {
	server := redistest.Start(t)
	const limit, callers, each = 100, 8, 50
	services := make([]*tested, 2)
	for i := range services {
		services[i] = &tested{t: t, Service: newServiceOn(t, envoyOn(t, server, ""), fmt.Sprintf("  - {key: a, limit: %d}\n", limit),
			"SLUICE_KEY_FORMAT=envoy")}
	}
	start := noon.Unix() / (365 * 86400) * (365 * 86400)
	key := fmt.Sprint("d_a_1_", start)
	var admitted atomic.Int64
	var work sync.WaitGroup
	for c := range callers {
		work.Go(func() {
			for range each {
				if c%2 == 0 {
					got, err := server.Do("INCRBY", key, "1")
					if n, _ := strconv.Atoi(got); err == nil && n <= limit {
						admitted.Add(1)
					}
					continue
				}
				if strings.HasPrefix(services[c/2%2].ask("a=1"), "OK") {
					admitted.Add(1)
				}
			}
		})
	}
	work.Wait()
	if got := admitted.Load(); got != limit {
		t.Errorf("%d requests are admitted, want %d", got, limit)
	}
	if got, _ := server.Do("GET", key); got != strconv.Itoa(callers*each) {
		t.Errorf("%s requests are counted, want %d", got, callers*each)
	}
}

// Limits per second are counted on a separate server, also together with others in one request.
func TestPerSecond(t *testing.T) {
	for _, format := range []string{"sluice", "envoy"} {
		t.Run(format, func(t *testing.T) {
			others, seconds := redistest.Start(t), redistest.Start(t)
			_, environ := ruleDir(t, "  - {key: s, rate_limit: {unit: second, requests_per_unit: 1000}}\n  - {key: a, limit: 5}\n")
			p := launch(t, append(environ, "REDIS_URL="+others.Addr, "REDIS_PERSECOND=true", "REDIS_PERSECOND_SOCKET_TYPE=tcp",
				"REDIS_PERSECOND_URL="+seconds.Addr, "SLUICE_KEY_FORMAT="+format)...)
			if got := p.ask("a=1 | s=1 | a=1"); got != "OK: OK 5/YEAR left 4 | OK 1000/SECOND left 999 | OK 5/YEAR left 3" {
				t.Error(got)
			}
			for _, server := range []*redistest.Server{others, seconds} {
				keys, err := server.Do("DBSIZE")
				if n, _ := strconv.Atoi(keys); err != nil || n < 1 {
					t.Errorf("there are %s keys, %v", keys, err)
				}
			}
			if format == "envoy" {
				if keys, _ := seconds.Do("KEYS", "*"); !strings.HasPrefix(keys, "d_s_1_") {
					t.Errorf("the server for limits per second has %q", keys)
				}
				if keys, _ := others.Do("KEYS", "*"); !strings.HasPrefix(keys, "d_a_1_") {
					t.Errorf("the other server has %q", keys)
				}
			}
		})
	}
}

func TestRedisKinds(t *testing.T) {
	_, environ := ruleDir(t, "  - {key: a, limit: 5}\n")
	check := func(t *testing.T, variables ...string) {
		t.Helper()
		own := ownPrefix()
		for _, format := range []string{"sluice", "envoy"} {
			p := launch(t, slices.Concat(environ, variables, []string{
				"SLUICE_KEY_FORMAT=" + format, own,
			})...)
			if got := p.ask("a=1 | a=2 | a=3"); got != "OK: OK 5/YEAR left 4 | OK 5/YEAR left 4 | OK 5/YEAR left 4" {
				t.Errorf("%s: %s", format, got)
			}
		}
	}
	t.Run("unix", func(t *testing.T) {
		t.Parallel()
		socket := filepath.Join(t.TempDir(), "s")
		redistest.Start(t, "--unixsocket", socket)
		check(t, "REDIS_SOCKET_TYPE=unix", "REDIS_URL="+socket)
	})
	t.Run("password", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, "--requirepass", "hunter2")
		check(t, "REDIS_URL="+server.Addr, "REDIS_AUTH=hunter2")
	})
	t.Run("user", func(t *testing.T) {
		t.Parallel()
		server := redistest.Shared(t)
		if _, err := server.Do("ACL", "SETUSER", "rl", "on", ">hunter2", "~*", "+@all"); err != nil {
			t.Fatal(err)
		}
		check(t, "REDIS_URL="+server.Addr, "REDIS_AUTH=rl:hunter2")
		check(t, "REDIS_URL=redis://rl:hunter2@"+server.Addr)
	})
	t.Run("the rights of the reference", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t)
		if _, err := server.Do("ACL", "SETUSER", "rl", "on", ">hunter2", "~pre*", "-@all", "+incrby", "+expire", "+ping"); err != nil {
			t.Fatal(err)
		}
		p := launch(t, slices.Concat(environ, []string{
			"REDIS_URL=" + server.Addr, "REDIS_AUTH=rl:hunter2", "SLUICE_KEY_FORMAT=envoy", "CACHE_KEY_PREFIX=pre",
		})...)
		if got := p.ask("a=1 | a=2"); got != "OK: OK 5/YEAR left 4 | OK 5/YEAR left 4" {
			t.Error(got)
		}
	})
	t.Run("TLS", func(t *testing.T) {
		t.Parallel()
		ca := newAuthority(t)
		cert, key := ca.issue(t, "localhost")
		_, port, _ := net.SplitHostPort(tcptest.FreeAddress(t))
		redistest.Start(t, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca.file)
		check(t, "REDIS_URL=localhost:"+port, "REDIS_TLS=true", "REDIS_TLS_CACERT="+ca.file, "REDIS_TLS_CLIENT_CERT="+cert,
			"REDIS_TLS_CLIENT_KEY="+key)
		check(t, "REDIS_URL=127.0.0.1:"+port, "REDIS_TLS=true", "REDIS_TLS_CACERT="+ca.file, "REDIS_TLS_CLIENT_CERT="+cert,
			"REDIS_TLS_CLIENT_KEY="+key, "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION=true")
		p := launch(t, slices.Concat(environ, []string{
			"REDIS_URL=127.0.0.1:" + port, "REDIS_TLS=true", "REDIS_TLS_CACERT=" + ca.file, "REDIS_TLS_CLIENT_CERT=" + cert,
			"REDIS_TLS_CLIENT_KEY=" + key, "REDIS_STARTUP_MAX_ELAPSED_TIME=1ms",
		})...)
		if p.ended() != 2 || !strings.Contains(p.logged(), "certificate") {
			t.Errorf("with a certificate for another name: exit code %d", p.code)
		}
		stranger := newAuthority(t)
		p = launch(t, slices.Concat(environ, []string{
			"REDIS_URL=localhost:" + port, "REDIS_TLS=true", "REDIS_TLS_CACERT=" + stranger.file, "REDIS_TLS_CLIENT_CERT=" + cert,
			"REDIS_TLS_CLIENT_KEY=" + key, "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION=true", "REDIS_STARTUP_MAX_ELAPSED_TIME=1ms",
		})...)
		if p.ended() != 2 || !strings.Contains(p.logged(), "unknown authority") {
			t.Errorf("with a certificate of another CA: exit code %d", p.code)
		}
	})
	t.Run("Cluster", func(t *testing.T) {
		t.Parallel()
		var addrs []string
		for _, server := range redistest.StartCluster(t).Primaries() {
			addrs = append(addrs, server.Addr)
		}
		check(t, "REDIS_TYPE=CLUSTER", "REDIS_URL="+strings.Join(addrs, ","))
	})
	t.Run("Sentinel", func(t *testing.T) {
		t.Parallel()
		rest, _ := strings.CutPrefix(redistest.StartSentinels(t).URL(), "redis://")
		addr, query, _ := strings.Cut(rest, "?")
		addrs, set := []string{addr}, ""
		for part := range strings.SplitSeq(query, "&") {
			name, value, _ := strings.Cut(part, "=")
			switch name {
			case "addr":
				addrs = append(addrs, value)
			case "master_set":
				set = value
			}
		}
		check(t, "REDIS_TYPE=sentinel", "REDIS_URL="+set+","+strings.Join(addrs, ","))
	})
}

func TestOverCacheIsBounded(t *testing.T) {
	const bytes = 100_000
	c := newLocalCache(bytes)
	counter := newCounters("d")[0][1]
	for i := range 100_000 {
		c.add(counter, strconv.Itoa(i), overLimit{100, 1}, 0)
	}
	entries := 0
	for i := range c.shards {
		entries += len(c.shards[i].over)
		if c.shards[i].bytes > bytes/len(c.shards) {
			t.Errorf("shard %d has %d bytes", i, c.shards[i].bytes)
		}
	}
	if entries < 500 || entries > bytes/localCacheEntry {
		t.Errorf("%d entries", entries)
	}
	c.add(counter, strings.Repeat("x", bytes), overLimit{100, 1}, 0) // larger than the cache
	if over, _ := c.has(counter, 1, strings.Repeat("x", bytes), 0); over {
		t.Error("an entry larger than the cache is stored")
	}
}

// The cache copies keys, because their memory is reused by the next request.
func TestOverCacheKeepsItsKeys(t *testing.T) {
	c := newLocalCache(100_000)
	counter := newCounters("d")[0][1]
	b := []byte("key1")
	for range 2 {
		c.add(counter, unsafeString(b), overLimit{100, 1}, 0)
	}
	copy(b, "keyX")
	has := func(requests uint32, key string, now int64) bool {
		over, _ := c.has(counter, requests, key, now)
		return over
	}
	if !has(1, "key1", 99) || has(1, "keyX", 99) || has(2, "key1", 99) || has(1, "key1", 100) {
		t.Error("an entry is missing, or an unknown key has one")
	}
}

// With the keys of the reference counts may exceed 32 bits, as in the reference.
func TestCountsBeyond32Bits(t *testing.T) {
	_, environ := ruleDir(t, "  - {key: a, limit: 4294967295}\n")
	p := launch(t, append(append(environ, onRedis(redistest.Shared(t))...), "SLUICE_KEY_FORMAT=envoy")...)
	for _, step := range []rlstest.Step{
		{Ask: "a=1 hits:4294967295", Want: "OK: OK 4294967295/YEAR left 0"},
		{Ask: "a=1 hits:0", Want: "OK: OK 4294967295/YEAR left 0"},
		{Ask: "a=1 hits:4294967295", Want: "OVER_LIMIT: OVER_LIMIT 4294967295/YEAR left 0"},
		{Ask: "a=1 hits:0", Want: "OVER_LIMIT: OVER_LIMIT 4294967295/YEAR left 0"},
		{Ask: "a=1 give:4294967295", Want: "OK: OK 4294967295/YEAR left 0"},
		{Ask: "a=1 hits:0", Want: "OK: OK 4294967295/YEAR left 0"},
		{Ask: "a=1 give:5", Want: "OK: OK 4294967295/YEAR left 5"},
	} {
		if got := p.ask(step.Ask); got != step.Want {
			t.Errorf("%s: got %s, want %s", step.Ask, got, step.Want)
		}
	}
}

// A count that was read before a refund is not cached after it.
func TestOverCacheAfterRefund(t *testing.T) {
	c := newLocalCache(100_000)
	counter := newCounters("d")[0][1]
	_, before := c.has(counter, 1, "key", 0)
	c.remove(counter, "key")
	c.add(counter, "key", overLimit{100, 1}, before)
	if over, _ := c.has(counter, 1, "key", 0); over {
		t.Error("a count from before the refund is cached")
	}
	_, before = c.has(counter, 1, "key", 0)
	c.add(counter, "key", overLimit{100, 5}, before)
	c.add(counter, "key", overLimit{100, 1}, before)
	if over, _ := c.has(counter, 4, "key", 0); !over {
		t.Error("the larger limit is not cached")
	}
}
