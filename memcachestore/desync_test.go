package memcachestore_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync/atomic"
	"testing"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/testenv/memcachetest"
	"github.com/sluiceproject/sluice/internal/testenv/tcptest"
	"github.com/sluiceproject/sluice/memcachestore"
)

// stuttering is a proxy in front of a server. It sends some replies twice, some only together with the next, and some
// never.
func stuttering(t *testing.T, to string, faults *atomic.Int64) (addr string) {
	return tcptest.Serve(t, func(c net.Conn) {
		up, err := net.Dial("tcp", to)
		if err != nil {
			return
		}
		defer func() { _ = up.Close() }()
		go func() {
			defer func() { _ = up.Close() }()
			pass(c, up, func(b []byte) []byte { return b })
		}()
		var kept []byte
		pass(up, c, func(b []byte) []byte {
			b = append(kept, b...)
			kept = nil
			switch rand.IntN(300) {
			case 0:
				b = append(b, b...)
			case 1:
				kept, b = b, nil
			case 2:
				b = nil
			default:
				return b
			}
			faults.Add(1)
			return b
		})
	})
}

// pass copies data from one connection to the other, modified by change.
func pass(from, to net.Conn, change func(b []byte) []byte) {
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		if _, err := to.Write(change(append([]byte(nil), b[:n]...))); err != nil {
			return
		}
	}
}

// TestOutOfStep: callers use different keys over connections that get out of step. Each call must return an error or
// the right decision.
func TestOutOfStep(t *testing.T) {
	server := memcachetest.Start(t)
	var faults, failed, right atomic.Int64
	direct := openStore(t, memcachestore.Config{Addrs: []string{server.Addr}})
	s := openStore(t, memcachestore.Config{Addrs: []string{stuttering(t, server.Addr, &faults)}, Timeout: short})
	calls := 10_000 / 16
	if os.Getenv("SLUICE_SOAK") != "" {
		calls = 1_000_000 / 16
	}
	rule := newRule("r", window(1<<31))
	// The cost identifies the key of a decision: the usage of a key is a multiple of its cost.
	costs := []int64{101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157, 163, 167, 173, 179}
	each([]*memcachestore.Store{s}, len(costs), func(s *memcachestore.Store, caller int) {
		key, cost := fmt.Sprint(caller), costs[caller]
		var granted, asked int64 // failed calls may have been charged, perhaps later
		check := func(what string, n int64) {
			if n%cost != 0 || n < granted || n > asked {
				t.Errorf("key %s, cost %d, %s: usage is %d, want %d to %d", key, cost, what, n, granted, asked)
			}
		}
		for range calls {
			asked += cost
			out := []sluice.Decision{{}}
			if err := s.Apply(ctx, []sluice.Take{{Rule: rule, Key: key, Cost: cost}}, out); err != nil {
				if !errors.Is(err, sluice.ErrUnavailable) {
					t.Error(err)
				}
				failed.Add(1)
				continue
			}
			granted += cost
			right.Add(1)
			check("an answer", out[0].Limit-out[0].Remaining)
		}
		check("at the end", spent(t, direct, rule, key))
	})
	t.Logf("%d faults, %d errors, %d right decisions", faults.Load(), failed.Load(), right.Load())
	if faults.Load() == 0 || failed.Load() == 0 || right.Load() == 0 {
		t.Error("too few faults, errors or right decisions")
	}
}

// TestFull checks that a server without room for a new key causes an error, and that existing keys are still counted.
func TestFull(t *testing.T) {
	server := memcachetest.Start(t, "-M", "-m", "2", "-o", "no_slab_reassign")
	s := openStore(t, memcachestore.Config{Addrs: []string{server.Addr}})
	rule := newRule("r", sluice.Per(5, month).WithAlgorithm(sluice.FixedWindow))
	taken := 0
	for ; ; taken++ {
		out := []sluice.Decision{{}}
		err := s.Apply(ctx, []sluice.Take{{Rule: rule, Key: fmt.Sprint(taken), Cost: 1}}, out)
		if errors.Is(err, sluice.ErrUnavailable) {
			break
		}
		if err != nil || !out[0].Allowed || taken > 1_000_000 {
			t.Fatalf("after %d keys: %+v, error %v", taken, out[0], err)
		}
	}
	refused(t, "a new key", s, sluice.Take{Rule: rule, Key: "new", Cost: 1})
	for i := range 5 {
		// Memcached deletes a value that it has no room to replace. That must not reset the usage.
		refused(t, "an existing key", s, sluice.Take{Rule: rule, Key: "0", Cost: 1})
		if n := spent(t, s, rule, "0"); n != 1 {
			t.Fatalf("the first of %d keys has a usage of %d after %d failed takes", taken, n, i+1)
		}
	}
}
