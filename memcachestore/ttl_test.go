package memcachestore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/testenv/memcachetest"
	"github.com/sluiceproject/sluice/memcachestore"
)

// timeToLive returns the TTL of a key at the server; ok is false if the key does not exist.
func timeToLive(t *testing.T, server *memcachetest.Server, name string) (d time.Duration, ok bool) {
	t.Helper()
	answer := server.Ask("mg " + name + " t")
	var seconds int64
	if _, err := fmt.Sscanf(answer, "HD t%d", &seconds); err != nil {
		return 0, false
	}
	return time.Duration(seconds) * time.Second, true
}

// TestTimeToLive checks the TTLs at the server: as long as a value counts, and not much longer.
func TestTimeToLive(t *testing.T) {
	const day = 24 * time.Hour
	server := memcachetest.Start(t)
	s := openStore(t, memcachestore.Config{Addrs: []string{server.Addr}})
	dates := time.Until(time.Unix(1<<31-1, 0)) // the end of Memcached's dates
	for name, tt := range map[string]struct {
		limit       sluice.Limit
		cost        int64
		least, most time.Duration
	}{
		"a millisecond": {sluice.Per(1, time.Millisecond), 1, time.Second, 10 * time.Second},
		"a minute":      {sluice.PerMinute(60), 60, time.Minute, 70 * time.Second},
		"29 days":       {sluice.Per(1, 29*day), 1, 29 * day, 29*day + 10*time.Second},
		"30 days":       {sluice.Per(1, 30*day), 1, 30 * day, 31*day + time.Minute},
		"31 days":       {sluice.Per(1, 31*day), 1, 31 * day, 32*day + time.Minute},
		"a year":        {sluice.Per(1, 365*day), 1, 365 * day, 366*day + time.Minute},
		"two years":     {sluice.Per(1, 365*day).WithAlgorithm(sluice.SlidingWindowCounter), 1, 365 * day, 731*day + time.Minute},
		"ninety years":  {sluice.Per(1, 365*day).WithBurst(90), 90, dates - time.Minute, dates + time.Minute},
	} {
		rule := newRule(name, tt.limit)
		if d := apply(t, s, sluice.Take{Rule: rule, Key: "k", Cost: tt.cost})[0]; !d.Allowed {
			t.Fatalf("%s: %+v", name, d)
		}
		got, ok := timeToLive(t, server, s.ItemName(rule, "k"))
		// The server has whole seconds, and one may have passed.
		if !ok || got < tt.least-2*time.Second || got > tt.most {
			t.Errorf("%s: TTL is %v (exists: %v), want %v to %v", name, got, ok, tt.least, tt.most)
		}
	}
}

// TestEveryKeyExpires checks that after every operation a key has a TTL or does not exist.
func TestEveryKeyExpires(t *testing.T) {
	server := memcachetest.Start(t)
	s := openStore(t, memcachestore.Config{Addrs: []string{server.Addr}})
	rule := newRule("r", window(5))
	name := s.ItemName(rule, "k")
	check := func(what string, there bool) {
		t.Helper()
		switch d, ok := timeToLive(t, server, name); {
		case ok != there:
			t.Errorf("after %s: exists is %v, want %v", what, ok, there)
		case ok && d <= 0:
			t.Errorf("after %s: TTL is %v", what, d)
		}
	}
	d := apply(t, s, sluice.Take{Rule: rule, Key: "k", Cost: 1})[0]
	check("a take", true)
	apply(t, s, sluice.Take{Rule: rule, Key: "k", Cost: -1, Receipt: d.Receipt})
	check("giving back", false)
	for _, block := range []time.Duration{time.Hour, 40 * 24 * time.Hour, 0} {
		if err := s.Block(ctx, sluice.Bucket{Rule: rule, Key: "k"}, block); err != nil {
			t.Error(err)
		}
		check(fmt.Sprint("a block of ", block), block > 0)
	}
	apply(t, s, sluice.Take{Rule: rule, Key: "k", Cost: 1, IdempotencyID: 7})
	check("a take with an ID", true)
	if err := s.Reset(ctx, sluice.Bucket{Rule: rule, Key: "k"}); err != nil {
		t.Error(err)
	}
	check("a reset, which leaves the ID", true)
	if d, _ := timeToLive(t, server, name); d > 70*time.Second {
		t.Errorf("TTL of an ID is %v", d)
	}
}

// TestStoredKeys checks that the server receives only digests, for any keys.
func TestStoredKeys(t *testing.T) {
	server := memcachetest.Start(t)
	s := openStore(t, memcachestore.Config{Addrs: []string{server.Addr}, KeyPrefix: strings.Repeat("p", 200)})
	rule := newRule("r", window(5))
	keys := []string{"a\r\nflush_all\r\n", "a b", "", strings.Repeat("x", 300), "\x00", "ä", "a\r\nms b 1\r\nx\r\n"}
	names := map[string]bool{}
	for _, key := range keys {
		for i := range int64(7) {
			d := apply(t, s, sluice.Take{Rule: rule, Key: key, Cost: 1})[0]
			if d.Allowed != (i < 5) || d.Remaining != max(0, 4-i) {
				t.Errorf("%.20q, take %d: %+v", key, i+1, d)
			}
		}
		name := s.ItemName(rule, key)
		if len(name) > 250 || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
			t.Errorf("%.20q is stored as %q", key, name)
		}
		names[name] = true
	}
	if stats := server.Stats(""); len(names) != len(keys) || stats["curr_items"] != fmt.Sprint(len(keys)) {
		t.Errorf("%d keys have %d names and %s items", len(keys), len(names), stats["curr_items"])
	}
}

// TestBytesPerKey checks the memory that a key takes at the server: the chunk in which it is stored.
func TestBytesPerKey(t *testing.T) {
	for name, tt := range map[string]struct {
		limit sluice.Limit
		takes int
		most  int
	}{
		"token bucket":    {sluice.PerHour(1000), 1, 120},
		"fixed window":    {sluice.PerHour(1000).WithAlgorithm(sluice.FixedWindow), 3, 120},
		"sliding counter": {sluice.PerHour(1000).WithAlgorithm(sluice.SlidingWindowCounter), 3, 120},
		"sliding log":     {sluice.PerHour(1000).WithAlgorithm(sluice.SlidingWindowLog), 10, 240},
	} {
		server := memcachetest.Start(t)
		s := openStore(t, memcachestore.Config{Addrs: []string{server.Addr}})
		rule := newRule(name, tt.limit)
		for i := range 100 {
			for range tt.takes {
				apply(t, s, sluice.Take{Rule: rule, Key: fmt.Sprint("user ", i), Cost: 1})
			}
		}
		var most int
		for k, v := range server.Stats("slabs") {
			var class, size int
			if _, err := fmt.Sscanf(k+" "+v, "%d:chunk_size %d", &class, &size); err == nil {
				most = max(most, size)
			}
		}
		stats := server.Stats("")
		t.Logf("%s: a key takes a chunk of %d bytes (%s bytes for %s items)", name, most, stats["bytes"], stats["curr_items"])
		if most > tt.most {
			t.Errorf("%s: a key takes a chunk of %d bytes, want at most %d", name, most, tt.most)
		}
	}
}
