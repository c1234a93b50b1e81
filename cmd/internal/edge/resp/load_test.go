package resp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/edge/resp"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/redisstore"
)

// stores returns the stores for the tests.
func stores(t *testing.T) map[string]sluice.Store {
	t.Helper()
	redis, err := redisstore.Open(redisstore.Config{URL: redistest.Start(t).URL(), KeyPrefix: t.Name() + ":"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(redis.Close)
	return map[string]sluice.Store{"memory": memstore.New(), "redis": redis}
}

// Concurrent pipelined commands on many connections are allowed exactly up to the limit, and each remaining quota is returned
// once.
func TestExactUnderLoad(t *testing.T) {
	const connections, limit = 16, 200
	each := soak(1000)
	for name, store := range stores(t) {
		t.Run(name, func(t *testing.T) {
			_, address := start(t, store, resp.Config{})
			var all sync.WaitGroup
			var allowed atomic.Int64
			var seen [limit]atomic.Int64
			throttle := array("CL.THROTTLE", "hot", fmt.Sprint(limit-1), "1", "86400")
			// The bucket begins before the others read the clock. A take with an earlier time than the first one would see
			// one unit less.
			first := dial(t, address)
			if _, err := io.WriteString(first, throttle); err != nil {
				t.Fatal(err)
			}
			if got, err := readFive(bufio.NewReader(first)); err != nil || got[0] != 0 || got[2] != limit-1 {
				t.Fatalf("the first take: %v, %v", got, err)
			}
			allowed.Add(1)
			seen[limit-1].Add(1)
			for range connections {
				all.Go(func() {
					c := dial(t, address)
					go func() {
						_, _ = io.WriteString(c, strings.Repeat(throttle, each))
					}()
					r := bufio.NewReader(c)
					for range each {
						got, err := readFive(r)
						if err != nil {
							t.Error(err)
							return
						}
						if got[0] == 0 {
							allowed.Add(1)
							seen[got[2]].Add(1)
						}
					}
				})
			}
			all.Wait()
			if got := allowed.Load(); got != limit {
				t.Errorf("%d were allowed of a limit of %d", got, limit)
			}
			for remaining := range seen {
				if n := seen[remaining].Load(); n != 1 {
					t.Errorf("%d replies have the remaining quota %d", n, remaining)
				}
			}
		})
	}
}

// Pipelined commands are replied to in order, and those for one key are decided in order.
func TestOrder(t *testing.T) {
	for name, store := range stores(t) {
		t.Run(name, func(t *testing.T) {
			_, address := start(t, store, resp.Config{})
			var text strings.Builder
			const rounds, keys = 40, 5
			for i := range rounds {
				for k := range keys {
					writeArray(&text, "CL.THROTTLE", fmt.Sprint("k", k), fmt.Sprint(100+k), "1", "86400")
				}
				if i%7 == 3 {
					writeArray(&text, "ECHO", "between")
					writeArray(&text, "CL.THROTTLE", "k0", "x", "1", "1")
				}
			}
			c := dial(t, address)
			if _, err := io.WriteString(c, text.String()); err != nil {
				t.Fatal(err)
			}
			r := bufio.NewReader(c)
			for i := range rounds {
				for k := range keys {
					got, err := readFive(r)
					if want := int64(100 + k - i); err != nil || got[0] != 0 || got[1] != int64(101+k) || got[2] != want {
						t.Fatalf("round %d, key %d: got %v, %v, want %d left", i, k, got, err, want)
					}
				}
				if i%7 == 3 {
					for _, want := range []string{"$7", "between", "-ERR max_burst"} {
						if line, err := r.ReadString('\n'); err != nil || !strings.HasPrefix(line, want) {
							t.Fatalf("got %q, %v, want %s", line, err, want)
						}
					}
				}
			}
		})
	}
}

// meeting is a remote store whose calls return only when enough of them are concurrent.
type meeting struct {
	*memstore.Store
	mu   sync.Mutex
	miss int // number of missing calls
	met  chan struct{}
}

func (*meeting) Shards() int            { return 1 }
func (*meeting) Shard(*sluice.Take) int { return 0 }

func (m *meeting) Apply(ctx context.Context, takes []sluice.Take, out []sluice.Decision) error {
	m.mu.Lock()
	if m.miss--; m.miss == 0 {
		close(m.met)
	}
	m.mu.Unlock()
	select {
	case <-m.met:
		return m.Store.Apply(ctx, takes, out)
	case <-ctx.Done():
		return errors.Join(sluice.ErrUnavailable, ctx.Err())
	}
}

// Pipelined commands do not wait for each other's round trips.
func TestTogether(t *testing.T) {
	const together = 64
	m := &meeting{Store: memstore.New(), miss: together, met: make(chan struct{})}
	limiter, err := sluice.NewWithRules(m, nil, sluice.WithStoreTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	address := startWith(t, limiter, resp.Config{})
	c := dial(t, address)
	r := bufio.NewReader(c)
	if _, err := io.WriteString(c, strings.Repeat("PING\n", 4000)); err != nil { // so that the server reads many commands at once
		t.Fatal(err)
	}
	if _, err := r.Discard(4000 * len("+PONG\r\n")); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for i := range together {
		writeArray(&text, "CL.THROTTLE", fmt.Sprint(i), fmt.Sprint(i), "1", "60")
	}
	if _, err := io.WriteString(c, text.String()); err != nil {
		t.Fatal(err)
	}
	for i := range together {
		if got, err := readFive(r); err != nil || got[0] != 0 || got[2] != int64(i) {
			t.Fatalf("%d: got %v, %v", i, got, err)
		}
	}
}

// While the store is unavailable, the fail mode decides.
func TestFailModes(t *testing.T) {
	away := &meeting{Store: memstore.New(), miss: -1}
	for mode, want := range map[sluice.FailMode][]five{
		sluice.FailLocal:  {{0, 2, 1, -1, 60}, {0, 2, 0, -1, 120}, {1, 2, 0, 60, 120}},
		sluice.FailOpen:   {{0, 2, 0, -1, 0}, {0, 2, 0, -1, 0}, {0, 2, 0, -1, 0}},
		sluice.FailClosed: {{1, 2, 0, 1, 0}, {1, 2, 0, 1, 0}, {1, 2, 0, 1, 0}},
	} {
		limiter, err := sluice.NewWithRules(away, nil, sluice.WithStoreTimeout(time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		a := newAsker(t, startWith(t, limiter, resp.Config{OnFailure: mode}))
		for i := range want {
			if got := a.throttle("k", 1, 1, 60); got != want[i] {
				t.Errorf("%v, call %d: got %v, want %v", mode, i, got, want[i])
			}
		}
	}
}

// broken is a store that returns an error for every call.
type broken struct{}

func (broken) Apply(context.Context, []sluice.Take, []sluice.Decision) error {
	return errors.Join(sluice.ErrInvalid, errors.New("for a reason"))
}

// A failed decision is an error reply of one line, and the next command is executed.
func TestNoDecision(t *testing.T) {
	_, address := start(t, broken{}, resp.Config{})
	if got, want := say(t, address, "CL.THROTTLE k 1 1 60\nPING\n"), "-ERR no decision: sluice: invalid call for a reason\r\n+PONG\r\n"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// A blocked key is denied, even for a quantity of 0.
func TestBlocked(t *testing.T) {
	store := memstore.New()
	_, address := start(t, store, resp.Config{})
	a := newAsker(t, address)
	if got := a.throttle("k", 9, 1, 1); got != (five{0, 10, 9, -1, 1}) {
		t.Fatalf("got %v", got)
	}
	rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: resp.RuleName, Limit: sluice.PerSecond(1)}))
	if err := store.Block(t.Context(), sluice.Bucket{Rule: rule, Key: "k"}, time.Hour); err != nil {
		t.Fatal(err)
	}
	if got := a.throttle("k", 9, 1, 1); got[0] != 1 || got[2] != 0 || got[3] < 3590 || got[3] > 3600 {
		t.Errorf("got %v", got)
	}
	if got := a.throttle("k", 9, 1, 1, 0); got[0] != 1 || got[2] != 0 || got[3] < 3590 || got[3] > 3600 {
		t.Errorf("a quantity of 0 gets %v", got)
	}
}

// asked returns the number of waiting calls of a meeting that never completes.
func (m *meeting) asked() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return -1 - m.miss
}
