package memcachestore_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/testenv/memcachetest"
	"github.com/sluiceproject/sluice/memcachestore"
)

var ctx = context.Background()

// month is a window in which no quota is replenished during a test.
const month = 30 * 24 * time.Hour

func newRule(name string, l sluice.Limit) *sluice.Rule {
	return sluice.Must(sluice.NewRule(sluice.Rule{Name: name, Limit: l}))
}

// window returns a limit that only counts.
func window(n int64) sluice.Limit {
	return sluice.Per(n, month).WithAlgorithm(sluice.FixedWindow).WithAlign(sluice.AlignFirstRequest)
}

func apply(t testing.TB, s *memcachestore.Store, takes ...sluice.Take) []sluice.Decision {
	t.Helper()
	out := make([]sluice.Decision, len(takes))
	if err := s.Apply(ctx, takes, out); err != nil {
		t.Error(err)
	}
	return out
}

func spent(t testing.TB, s *memcachestore.Store, r *sluice.Rule, key string) int64 {
	t.Helper()
	d := apply(t, s, sluice.Take{Rule: r, Key: key})[0]
	return d.Limit - d.Remaining
}

// processes opens stores that share only the server, like processes.
func processes(t testing.TB, addr string, n int) []*memcachestore.Store {
	t.Helper()
	all := make([]*memcachestore.Store, n)
	for i := range all {
		all[i] = openStore(t, memcachestore.Config{Addrs: []string{addr}})
	}
	return all
}

// each runs f for each of n callers of each store.
func each(stores []*memcachestore.Store, n int, f func(s *memcachestore.Store, caller int)) {
	var all sync.WaitGroup
	for i, s := range stores {
		for j := range n {
			all.Go(func() { f(s, i*n+j) })
		}
	}
	all.Wait()
}

// TestExactAcrossProcesses checks that 32 callers of one key, over independent stores, are admitted exactly the limit.
func TestExactAcrossProcesses(t *testing.T) {
	all := processes(t, memcachetest.Start(t).Addr, 4)
	for name, l := range map[string]sluice.Limit{
		"token bucket": sluice.Per(100, 360*24*time.Hour), "fixed window": window(100), // a token takes days
		"sliding log": sluice.Per(100, month).WithAlgorithm(sluice.SlidingWindowLog),
		"leaky queue": sluice.Per(100, 360*24*time.Hour).WithAlgorithm(sluice.LeakyQueue),
	} {
		rule := newRule(name, l)
		var granted atomic.Int64
		each(all, 8, func(s *memcachestore.Store, _ int) {
			for range 10 {
				granted.Add(apply(t, s, sluice.Take{Rule: rule, Key: "hot", Cost: 1})[0].Granted)
			}
		})
		if granted.Load() != 100 {
			t.Errorf("%s: 320 takes of a limit of 100: %d were admitted", name, granted.Load())
		}
	}
	var conflicts int64
	for _, s := range all {
		conflicts += s.Stats().CASConflicts
	}
	t.Logf("%d conflicts", conflicts)
}

// meddled returns a store, and a function that sets what happens between its read and its write. The store reads the
// clock in between.
func meddled(t *testing.T, addrs ...string) (s *memcachestore.Store, meddle func(f func())) {
	t.Helper()
	var next func()
	s = openStore(t, memcachestore.Config{Addrs: addrs, Now: func() time.Time {
		if f := next; f != nil {
			next = nil
			f()
		}
		return time.Now()
	}})
	return s, func(f func()) { next = f }
}

// TestConflict checks that a lost swap is counted and the take decided again.
func TestConflict(t *testing.T) {
	addr := memcachetest.Start(t).Addr
	s, meddle := meddled(t, addr)
	other := openStore(t, memcachestore.Config{Addrs: []string{addr}})
	rule := newRule("r", window(3))
	take := sluice.Take{Rule: rule, Key: "k", Cost: 1}
	for i, want := range []string{"add", "swap"} {
		meddle(func() { apply(t, other, take) })
		if d := apply(t, s, take)[0]; d.Allowed != (i == 0) {
			t.Errorf("%s: allowed is %v", want, d.Allowed)
		}
		if n := s.Stats().CASConflicts; n != int64(i+1) {
			t.Errorf("%s: %d conflicts, want %d", want, n, i+1)
		}
	}
	meddle(func() {
		if err := other.Reset(ctx, sluice.Bucket{Rule: rule, Key: "k"}); err != nil {
			t.Error(err)
		}
	})
	if d := apply(t, s, take)[0]; d.Allowed { // decided before the reset, and there is nothing to swap
		t.Error("allowed, though the limit was exhausted when it was read")
	}
	if n := spent(t, s, rule, "k"); n != 0 {
		t.Errorf("usage is %d after a reset", n)
	}
}

// TestDenialsDoNotWrite checks that a denied take costs one round trip and causes no conflict.
func TestDenialsDoNotWrite(t *testing.T) {
	s := openStore(t, memcachestore.Config{Addrs: []string{memcachetest.Start(t).Addr}})
	for _, l := range []sluice.Limit{
		window(1), sluice.PerWeek(1), sluice.PerWeek(1).WithAlgorithm(sluice.SlidingWindowLog),
		sluice.PerWeek(1).WithAlgorithm(sluice.SlidingWindowCounter),
	} {
		rule := newRule("r", l)
		apply(t, s, sluice.Take{Rule: rule, Key: "another", Cost: 1}) // so that its limit parameters are recorded
		for i, trips := range []int64{2, 1, 1} {
			before := s.Stats().RoundTrips
			apply(t, s, sluice.Take{Rule: rule, Key: "k", Cost: 1})
			if n := s.Stats().RoundTrips - before; n != trips {
				t.Errorf("%v, take %d: %d round trips, want %d", l, i+1, n, trips)
			}
		}
	}
}

// TestGivenBack: in a call on two keys one swap succeeds and the other is lost to another process, which has used up
// the limit. The charge must be refunded.
func TestGivenBack(t *testing.T) {
	addr := memcachetest.Start(t).Addr
	other := openStore(t, memcachestore.Config{Addrs: []string{addr}})
	for _, l := range []sluice.Limit{
		window(5), sluice.Per(5, 300*24*time.Hour), sluice.Per(5, month).WithAlgorithm(sluice.SlidingWindowLog),
		sluice.Per(5, 300*24*time.Hour).WithAlgorithm(sluice.LeakyQueue), sluice.Per(5, month).WithAlgorithm(sluice.SlidingWindowCounter),
	} {
		s, meddle := meddled(t, addr)
		free, full := newRule("free "+l.String(), l), newRule("full "+l.String(), window(2))
		both := []sluice.Take{{Rule: free, Key: "k", Cost: 3, IdempotencyID: 1}, {Rule: full, Key: "k", Cost: 1, IdempotencyID: 1}}
		meddle(func() { apply(t, other, sluice.Take{Rule: full, Key: "k", Cost: 2}) })
		out := apply(t, s, both...)
		if !out[0].Allowed || out[0].Granted != 0 || out[0].Remaining != 5 || out[1].Allowed {
			t.Errorf("%v: %+v", l, out)
		}
		if n := s.Stats().Refunds; n != 1 {
			t.Errorf("%v: %d takes refunded, want 1", l, n)
		}
		if n := spent(t, s, free, "k"); n != 0 {
			t.Errorf("%v: usage is %d after a denied call", l, n)
		}
		// Its ID was not charged, so it is decided again.
		if err := s.Reset(ctx, sluice.Bucket{Rule: full, Key: "k"}); err != nil {
			t.Error(err)
		}
		if out = apply(t, s, both...); out[0].Granted != 3 || out[1].Granted != 1 {
			t.Errorf("%v, after a reset: %+v", l, out)
		}
		if n := spent(t, s, free, "k"); n != 3 {
			t.Errorf("%v, after a reset: usage is %d, want 3", l, n)
		}
	}
}

// TestPartlyLost: in a call on two keys one swap is lost, but the limit still admits it.
func TestPartlyLost(t *testing.T) {
	addr := memcachetest.Start(t).Addr
	s, meddle := meddled(t, addr)
	other := openStore(t, memcachestore.Config{Addrs: []string{addr}})
	a, b := newRule("a", window(5)), newRule("b", window(5))
	meddle(func() { apply(t, other, sluice.Take{Rule: b, Key: "k", Cost: 2}) })
	out := apply(t, s, sluice.Take{Rule: a, Key: "k", Cost: 1}, sluice.Take{Rule: b, Key: "k", Cost: 1})
	if out[0].Remaining != 4 || out[1].Remaining != 2 || s.Stats().Refunds != 0 {
		t.Errorf("%+v", out)
	}
	if x, y := spent(t, s, a, "k"), spent(t, s, b, "k"); x != 1 || y != 3 {
		t.Errorf("usage is %d and %d, want 1 and 3", x, y)
	}
}

// TestDeniedForGood: two rules charge denied requests, and one of their swaps is lost. When it is decided again, the
// limit would admit it. But the call was denied, and the third rule was not charged because of that.
func TestDeniedForGood(t *testing.T) {
	addr := memcachetest.Start(t).Addr
	s, meddle := meddled(t, addr)
	other := openStore(t, memcachestore.Config{Addrs: []string{addr}})
	strict := func(name string) *sluice.Rule {
		return sluice.Must(sluice.NewRule(sluice.Rule{Name: name, Limit: window(5), ChargeDenied: true}))
	}
	full, charged, plain := strict("full"), strict("charged"), newRule("plain", window(5))
	apply(t, s, sluice.Take{Rule: full, Key: "k", Cost: 5})
	meddle(func() {
		if err := other.Reset(ctx, sluice.Bucket{Rule: full, Key: "k"}); err != nil {
			t.Error(err)
		}
	})
	out := apply(t, s, sluice.Take{Rule: full, Key: "k", Cost: 1},
		sluice.Take{Rule: charged, Key: "k", Cost: 1}, sluice.Take{Rule: plain, Key: "k", Cost: 1})
	if out[0].Allowed || out[0].RetryAfter <= 0 || !out[1].Allowed || !out[2].Allowed {
		t.Errorf("%+v", out)
	}
	for r, want := range map[*sluice.Rule]int64{full: 1, charged: 1, plain: 0} {
		if n := spent(t, s, r, "k"); n != want {
			t.Errorf("%s: usage is %d, want %d", r.Name, n, want)
		}
	}
}

// TestDeniedLate is like TestGivenBack, but when the denying key is charged for the denial, its limit would admit the
// take again. It stays denied, because the first charge has been refunded.
func TestDeniedLate(t *testing.T) {
	addr := memcachetest.Start(t).Addr
	s, meddle := meddled(t, addr)
	other := openStore(t, memcachestore.Config{Addrs: []string{addr}})
	free := newRule("free", window(5))
	full := sluice.Must(sluice.NewRule(sluice.Rule{Name: "full", Limit: window(2), ChargeDenied: true}))
	meddle(func() {
		apply(t, other, sluice.Take{Rule: full, Key: "k", Cost: 2})
		meddle(func() {
			if err := other.Reset(ctx, sluice.Bucket{Rule: full, Key: "k"}); err != nil {
				t.Error(err)
			}
		})
	})
	out := apply(t, s, sluice.Take{Rule: free, Key: "k", Cost: 3}, sluice.Take{Rule: full, Key: "k", Cost: 1})
	if !out[0].Allowed || out[0].Granted != 0 || out[1].Allowed || out[1].RetryAfter <= 0 {
		t.Errorf("%+v", out)
	}
	if x, y := spent(t, s, free, "k"), spent(t, s, full, "k"); x != 0 || y != 1 {
		t.Errorf("usage is %d and %d, want 0 and 1", x, y)
	}
}

// TestTransferAcrossProcesses checks that two keys that are always used together end up with the same usage, which
// equals the granted cost.
func TestTransferAcrossProcesses(t *testing.T) {
	addrs := []string{memcachetest.Start(t).Addr, memcachetest.Start(t).Addr}
	var all []*memcachestore.Store
	for range 4 {
		all = append(all, openStore(t, memcachestore.Config{Addrs: addrs}))
	}
	a, b := newRule("a", window(80)), newRule("b", window(60))
	var granted atomic.Int64
	each(all, 8, func(s *memcachestore.Store, caller int) {
		for range 8 {
			takes := []sluice.Take{{Rule: a, Key: "k", Cost: 1}, {Rule: b, Key: "k", Cost: 1}}
			if caller%2 == 1 {
				takes[0], takes[1] = takes[1], takes[0]
			}
			out := apply(t, s, takes...)
			if out[0].Granted != out[1].Granted {
				t.Errorf("granted %d and %d, want the same", out[0].Granted, out[1].Granted)
			}
			granted.Add(out[0].Granted)
		}
	})
	n, x, y := granted.Load(), spent(t, all[0], a, "k"), spent(t, all[0], b, "k")
	if n > 60 || x != n || y != n {
		t.Errorf("granted %d of 60, usage is %d and %d", n, x, y)
	}
	if n < 30 {
		t.Errorf("only %d of 60 were granted to 256 calls", n)
	}
}

// TestOnceByIDAcrossProcesses: all processes send many more IDs than an item holds, concurrently and again later. Each
// must be charged once.
func TestOnceByIDAcrossProcesses(t *testing.T) {
	server := memcachetest.Start(t)
	all := processes(t, server.Addr, 3)
	const ids = 5 * memcachestore.MaxCharges
	rule := newRule("r", window(10*ids))
	for range 2 {
		each(all, 3, func(s *memcachestore.Store, _ int) {
			for id := range uint64(ids) {
				d := apply(t, s, sluice.Take{Rule: rule, Key: "k", Cost: 2, IdempotencyID: id + 1})[0]
				if !d.Allowed || d.Granted != 2 {
					t.Errorf("ID %d: %+v", id+1, d)
				}
			}
		})
		if n := spent(t, all[0], rule, "k"); n != 2*ids {
			t.Errorf("%d IDs of cost 2, each sent by 9 callers: usage is %d", ids, n)
		}
	}
	var size int
	if _, err := fmt.Sscanf(server.Ask("mg "+all[0].ItemName(rule, "k")+" s"), "HD s%d", &size); err != nil {
		t.Fatal(err)
	}
	if size > 30*memcachestore.MaxCharges {
		t.Errorf("after %d IDs the item has %d bytes: old IDs should have separate keys", ids, size)
	}
}

// TestThreeProcesses starts three processes of the test binary that request ten times the limit. Exactly the limit must
// be admitted.
func TestThreeProcesses(t *testing.T) {
	requests := int64(100_000)
	if os.Getenv("SLUICE_SOAK") != "" {
		requests = 1_000_000
	}
	limit := requests / 10
	if addr := os.Getenv("SLUICE_TEST_MEMCACHED"); addr != "" {
		fmt.Printf("granted %d\n", contend(t, addr, limit, requests))
		return
	}
	addr := memcachetest.Start(t).Addr
	var all sync.WaitGroup
	var granted atomic.Int64
	for range 3 {
		all.Go(func() {
			cmd := exec.Command(os.Args[0], "-test.run=^TestThreeProcesses$", "-test.v")
			cmd.Env = append(os.Environ(), "SLUICE_TEST_MEMCACHED="+addr)
			out, err := cmd.CombinedOutput()
			_, count, found := strings.Cut(string(out), "granted ")
			n, bad := strconv.Atoi(strings.Fields(count + " -")[0])
			if err != nil || !found || bad != nil {
				t.Errorf("%v\n%s", err, out)
			}
			granted.Add(int64(n))
		})
	}
	all.Wait()
	if granted.Load() != limit {
		t.Errorf("admitted %d, want %d", granted.Load(), limit)
	}
}

// contend runs one of the processes.
func contend(t *testing.T, addr string, limit, requests int64) int64 {
	s := openStore(t, memcachestore.Config{Addrs: []string{addr}, Timeout: patient})
	rule := newRule("hot", window(limit))
	var granted, asked atomic.Int64
	each([]*memcachestore.Store{s}, 64/3, func(s *memcachestore.Store, _ int) {
		for asked.Add(1) <= requests/3 {
			granted.Add(apply(t, s, sluice.Take{Rule: rule, Key: "k", Cost: 1})[0].Granted)
		}
	})
	return granted.Load()
}
