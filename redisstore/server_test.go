package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
	"github.com/sluiceproject/sluice/redisstore"
	"github.com/sluiceproject/sluice/storetest"
)

func open(t testing.TB, c redisstore.Config) *redisstore.Store {
	t.Helper()
	store, err := redisstore.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store
}

// do sends a command to the server.
func do(t testing.TB, server *redistest.Server, command ...string) string {
	t.Helper()
	reply, err := server.Do(command...)
	if err != nil {
		t.Fatalf("%q: %v", command, err)
	}
	return reply
}

// keys returns the stored keys of buckets, blocks and idempotency IDs.
func keys(t testing.TB, server *redistest.Server) []string {
	t.Helper()
	return slices.DeleteFunc(strings.Fields(do(t, server, "KEYS", "*")), func(key string) bool {
		return strings.Contains(key, ":1n") // the record of a rule's limit parameters
	})
}

func apply(t testing.TB, store sluice.Store, takes ...sluice.Take) []sluice.Decision {
	t.Helper()
	out := make([]sluice.Decision, len(takes))
	if err := store.Apply(context.Background(), takes, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// kinds contains one limit of each algorithm.
var kinds = []struct {
	name  string
	limit sluice.Limit
	bytes int // maximum size of a key in Redis; 0: unchecked
}{
	{"token_bucket", sluice.PerMinute(100), 112},
	{"token_bucket_short_fraction", sluice.PerMinute(77), 112},
	{"token_bucket_long_fraction", sluice.PerHour(99_991), 144},
	{"initial_bucket", sluice.PerMinute(100).WithInitial(10), 112},
	{"leaky_queue", sluice.PerMinute(100).WithAlgorithm(sluice.LeakyQueue), 112},
	{"interval_bucket", sluice.Limit{Count: 10, Window: time.Minute, Refill: sluice.RefillInterval}, 144},
	{"fixed_window", sluice.PerMinute(100).WithAlgorithm(sluice.FixedWindow), 112},
	{"calendar_window", sluice.PerCalendar(100, sluice.CalendarDay, nil), 112},
	{"soft_window", sluice.PerMinute(1).WithAlgorithm(sluice.FixedWindow).WithSoftExcess(50, time.Second), 144},
	{"sliding_counter", sluice.PerMinute(100).WithAlgorithm(sluice.SlidingWindowCounter), 144},
	{"sub_windows", sluice.Limit{Count: 100, Window: time.Minute, Algorithm: sluice.SlidingWindowCounter, SubWindows: 6}, 0},
	{"sliding_log", sluice.PerMinute(100).WithAlgorithm(sluice.SlidingWindowLog), 0},
}

// TestMemory checks the memory per key, with the default prefix and a name of common length.
func TestMemory(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, redisstore.Config{URL: server.URL()})
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			do(t, server, "FLUSHALL")
			rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: k.name, Limit: k.limit}))
			for range 3 {
				apply(t, store, sluice.Take{Rule: rule, Key: "user-1234567", Cost: 1})
			}
			stored := keys(t, server)
			if len(stored) != 1 {
				t.Fatalf("one bucket is stored as %q", stored)
			}
			n, err := strconv.Atoi(do(t, server, "MEMORY", "USAGE", stored[0], "SAMPLES", "0"))
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d bytes, %s, as %s", n, stored[0], do(t, server, "OBJECT", "ENCODING", stored[0]))
			if k.bytes > 0 && n > k.bytes {
				t.Errorf("%s takes %d bytes, want at most %d", stored[0], n, k.bytes)
			}
		})
	}
}

// TestEveryKeyExpires checks that every key has a TTL after every operation, and that it is not longer than necessary.
func TestEveryKeyExpires(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, redisstore.Config{URL: server.URL()})
	const margin = 2 * time.Second // maximum TTL beyond the state, plus the time that passes in between
	for _, k := range kinds {
		for _, charge := range []bool{false, true} {
			t.Run(fmt.Sprint(k.name, "/charge_denied=", charge), func(t *testing.T) {
				do(t, server, "FLUSHALL")
				rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: k.name, Limit: k.limit, ChargeDenied: charge}))
				expires := func(after string) {
					t.Helper()
					reset := apply(t, store, sluice.Take{Rule: rule, Key: "k"})[0].ResetAfter
					least, most := time.Duration(0), max(reset, time.Hour)+margin
					if k.name == "initial_bucket" { // kept for a day once full, its IDs as long as others
						least, most = 24*time.Hour, reset+24*time.Hour+margin
					}
					for _, key := range keys(t, server) {
						ms, err := strconv.Atoi(do(t, server, "PTTL", key))
						if err != nil {
							t.Fatal(err)
						}
						if ttl := time.Duration(ms) * time.Millisecond; ms <= 0 || ttl > most || ttl < least && strings.HasPrefix(key, "sluice:1g") {
							t.Errorf("after %s: %s has a TTL of %v, its state expires in %v", after, key, ttl, reset)
						}
					}
				}
				take := sluice.Take{Rule: rule, Key: "k", Cost: 1}
				first := apply(t, store, take)[0]
				expires("a take")
				take.IdempotencyID = 7
				apply(t, store, take)
				expires("a take with an ID")
				apply(t, store, sluice.Take{Rule: rule, Key: "k", Cost: 1 << 40})
				expires("a refusal")
				apply(t, store, sluice.Take{Rule: rule, Key: "k", Cost: 3, Receipt: first.Receipt})
				expires("a settlement")
				apply(t, store, sluice.Take{Rule: rule, Key: "k", Cost: -1, Receipt: first.Receipt})
				expires("giving back")
				if err := store.Block(context.Background(), sluice.Bucket{Rule: rule, Key: "k"}, time.Minute); err != nil {
					t.Fatal(err)
				}
				apply(t, store, take)
				expires("a block")
				if err := store.Reset(context.Background(), sluice.Bucket{Rule: rule, Key: "k"}); err != nil {
					t.Fatal(err)
				}
				expires("a reset")
			})
		}
	}
}

// TestGivenBackIsGone checks that a fully refunded bucket has no key.
func TestGivenBackIsGone(t *testing.T) {
	server := redistest.Start(t)
	clock := storetest.NewClock()
	store := open(t, redisstore.Config{URL: server.URL(), Now: clock.Now})
	for _, k := range kinds {
		if k.name == "sub_windows" { // its empty ring is kept until it expires
			continue
		}
		if k.name == "initial_bucket" { // without a key it would be a new bucket with its initial level
			continue
		}
		t.Run(k.name, func(t *testing.T) {
			do(t, server, "FLUSHALL")
			rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: k.name, Limit: k.limit}))
			taken := apply(t, store, sluice.Take{Rule: rule, Key: "k", Cost: 1})[0]
			apply(t, store, sluice.Take{Rule: rule, Key: "k", Cost: -1, Receipt: taken.Receipt})
			if left := keys(t, server); len(left) != 0 {
				t.Errorf("keys left: %q", left)
			}
		})
	}
}

// TestKilledServer checks that calls fail as unavailable within their deadline while the server is down, and succeed
// again on the same store afterwards.
func TestKilledServer(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, redisstore.Config{URL: server.URL()})
	rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: "r", Limit: sluice.PerHour(5)}))
	try := func(limit time.Duration) error {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		out := make([]sluice.Decision, 1)
		return store.Apply(ctx, []sluice.Take{{Rule: rule, Key: "k", Cost: 1}}, out)
	}
	if err := try(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	for range 5 {
		if err := try(10 * time.Second); !errors.Is(err, sluice.ErrUnavailable) {
			t.Fatalf("without a server: error %v", err)
		}
	}
	if err := store.Block(context.Background(), sluice.Bucket{Rule: rule, Key: "k"}, time.Minute); !errors.Is(err, sluice.ErrUnavailable) {
		t.Errorf("Block without a server: error %v", err)
	}
	if err := store.Reset(context.Background(), sluice.Bucket{Rule: rule, Key: "k"}); !errors.Is(err, sluice.ErrUnavailable) {
		t.Errorf("Reset without a server: error %v", err)
	}
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	// The new process does not have the script, and connections must be opened.
	await(t, func() error { return try(10 * time.Second) })
}

// TestStoppedServer checks that a server that does not reply costs a caller no more than its deadline.
func TestStoppedServer(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, redisstore.Config{URL: server.URL()})
	rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: "r", Limit: sluice.PerHour(5)}))
	apply(t, store, sluice.Take{Rule: rule, Key: "k", Cost: 1})
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	err := store.Apply(ctx, []sluice.Take{{Rule: rule, Key: "k", Cost: 1}}, make([]sluice.Decision, 1))
	if !errors.Is(err, sluice.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("paused server: error %v", err)
	}
	if err := server.Continue(); err != nil {
		t.Fatal(err)
	}
	// The first call did not run twice, and may have been charged.
	if d := apply(t, store, sluice.Take{Rule: rule, Key: "k"})[0]; d.Remaining < 3 {
		t.Errorf("Remaining is %d of 5 after two takes", d.Remaining)
	}
}

// TestOutOfMemory checks that a server without memory returns errors and loses no usage.
func TestOutOfMemory(t *testing.T) {
	server := redistest.Start(t, "--maxmemory-policy", "noeviction")
	clock := storetest.NewClock()
	store := open(t, redisstore.Config{URL: server.URL(), Now: clock.Now})
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: k.name, Limit: k.limit, ChargeDenied: true}))
			take := sluice.Take{Rule: rule, Key: "k", Cost: 1}
			apply(t, store, take, take, take)
			before := apply(t, store, sluice.Take{Rule: rule, Key: "k"})[0]
			do(t, server, "CONFIG", "SET", "maxmemory", "1")
			for _, cost := range []int64{1, 100, 1 << 40} {
				take.Cost = cost
				err := store.Apply(context.Background(), []sluice.Take{take}, make([]sluice.Decision, 1))
				if !errors.Is(err, sluice.ErrUnavailable) {
					t.Errorf("cost %d, out of memory: error %v", cost, err)
				}
			}
			do(t, server, "CONFIG", "SET", "maxmemory", "0")
			if after := apply(t, store, sluice.Take{Rule: rule, Key: "k"})[0]; after != before {
				t.Errorf("after out-of-memory errors\n got %+v\nwant %+v", after, before)
			}
		})
	}
}

// TestKeptLongEnough checks that a key exists at least until its state expires, after any sequence of takes.
func TestKeptLongEnough(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, redisstore.Config{URL: server.URL()})
	limits := map[string]sluice.Limit{
		"bucket":          sluice.PerHour(3600),
		"bucket_fraction": sluice.PerHour(3593),
		"bucket_slow":     sluice.PerDay(200),
		"queue":           sluice.PerHour(3600).WithAlgorithm(sluice.LeakyQueue),
		"interval":        {Count: 10, Window: 10 * time.Second, Burst: 1000, Refill: sluice.RefillInterval},
		"window":          sluice.PerHour(1000).WithAlgorithm(sluice.FixedWindow),
		"first_hit":       sluice.Per(1000, 100*time.Second).WithAlgorithm(sluice.FixedWindow).WithAlign(sluice.AlignFirstRequest),
		"counter":         sluice.PerMinute(1000).WithAlgorithm(sluice.SlidingWindowCounter),
		"sub_windows":     {Count: 1000, Window: time.Minute, Algorithm: sluice.SlidingWindowCounter, SubWindows: 6},
		"log":             sluice.PerMinute(1000).WithAlgorithm(sluice.SlidingWindowLog),
	}
	for name, limit := range limits {
		t.Run(name, func(t *testing.T) {
			do(t, server, "FLUSHALL")
			rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: name, Limit: limit}))
			for i := range 100 {
				d := apply(t, store, sluice.Take{Rule: rule, Key: "k", Cost: 1 + int64(i%3)})[0]
				for _, key := range keys(t, server) {
					ms, err := strconv.Atoi(do(t, server, "PTTL", key))
					if err != nil {
						t.Fatal(err)
					}
					// The margin is 1 s, some of which may pass before the TTL is read.
					if ttl := time.Duration(ms) * time.Millisecond; ttl < d.ResetAfter {
						t.Fatalf("after %d takes the TTL is %v, but the state expires in %v", i+1, ttl, d.ResetAfter)
					}
				}
			}
		})
	}
}
