package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/step"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
)

// hinted contains a limit of 10 for each kind that hints support.
var hinted = map[string]sluice.Limit{
	"token_bucket":    sluice.PerHour(10),
	"odd_rate":        sluice.Per(10, 7_000_003*time.Millisecond),
	"leaky_queue":     sluice.PerHour(10).WithAlgorithm(sluice.LeakyQueue),
	"interval_bucket": {Count: 5, Window: time.Hour, Burst: 10, Refill: sluice.RefillInterval},
	"fixed_window":    sluice.PerDay(10).WithAlgorithm(sluice.FixedWindow),
	"first_hit":       sluice.PerHour(10).WithAlgorithm(sluice.FixedWindow).WithAlign(sluice.AlignFirstRequest),
	"calendar":        sluice.PerCalendar(10, sluice.CalendarDay, nil),
	"soft":            sluice.PerDay(8).WithAlgorithm(sluice.FixedWindow).WithSoftExcess(2, time.Hour),
	"sliding_counter": sluice.PerDay(10).WithAlgorithm(sluice.SlidingWindowCounter),
	"sub_windows":     {Count: 10, Window: time.Hour, Algorithm: sluice.SlidingWindowCounter, SubWindows: 6},
}

// noon returns a time at which no window ends.
func noon() time.Time { return time.Date(2026, time.June, 1, 12, 20, 0, 0, time.UTC) }

func openHinting(t *testing.T, server *redistest.Server) *Store {
	t.Helper()
	s := sluice.Must(Open(Config{URL: server.URL(), Now: noon}))
	t.Cleanup(s.Close)
	return s
}

// dialServer returns a client whose connections the store cannot observe.
func dialServer(t *testing.T, server *redistest.Server) rueidis.Client {
	t.Helper()
	option := rueidis.MustParseURL(server.URL())
	option.DisableCache, option.DisableRetry, option.ConnWriteTimeout = true, true, time.Minute
	client := sluice.Must(rueidis.NewClient(option))
	t.Cleanup(client.Close)
	return client
}

// try applies takes until the server replies, because closed connections are reopened.
func try(t *testing.T, s *Store, takes ...sluice.Take) []sluice.Decision {
	t.Helper()
	out := make([]sluice.Decision, len(takes))
	var err error
	for range 100 {
		if err = s.Apply(context.Background(), takes, out); err == nil {
			return out
		}
		if !errors.Is(err, sluice.ErrUnavailable) {
			break
		}
	}
	t.Fatal(err)
	return nil
}

// see peeks at a key until the store has recorded which server replied, which it does not while connections are being
// opened.
func see(t *testing.T, s *Store, r *sluice.Rule) sluice.Decision {
	t.Helper()
	for range 100 {
		before := s.hints.epoch.Load()
		d := try(t, s, sluice.Take{Rule: r, Key: "k"})[0]
		if s.hints.epoch.Load() == before {
			return d
		}
	}
	t.Fatal("the store keeps opening connections")
	return sluice.Decision{}
}

// admitted takes one unit at a time until it is denied, and returns how many were allowed.
func admitted(t *testing.T, s *Store, r *sluice.Rule) (n int) {
	t.Helper()
	for ; n < 100; n++ {
		if !try(t, s, sluice.Take{Rule: r, Key: "k", Cost: 1})[0].Allowed {
			return n
		}
	}
	return n
}

// TestForgetfulServer: a server that restarts empty gets the last state as a hint, and grants the remaining quota only.
// A store without hints can read the state that it then stores.
func TestForgetfulServer(t *testing.T) {
	server := redistest.Start(t)
	for name, limit := range hinted {
		t.Run(name, func(t *testing.T) {
			rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: name, Limit: limit}))
			with, without, older := openHinting(t, server), openHinting(t, server), openHinting(t, server)
			without.WithoutHints()
			older.WithoutHints()
			for range 7 {
				try(t, with, sluice.Take{Rule: rule, Key: "k", Cost: 1})
			}
			see(t, with, rule)
			server.Kill()
			if err := server.Restart(); err != nil {
				t.Fatal(err)
			}
			if n := try(t, without, sluice.Take{Rule: rule, Key: "k"})[0].Remaining; n < 8 {
				t.Fatalf("Remaining is %d after a restart without hints: the server lost nothing", n)
			}
			see(t, with, rule) // the first call may be sent without a hint, before the new connection is open
			if n := try(t, with, sluice.Take{Rule: rule, Key: "k", Cost: 1}); !n[0].Allowed || with.FailoverRestores() != 1 {
				t.Errorf("after the restart: %+v, %d restored", n, with.FailoverRestores())
			}
			if n := admitted(t, older, rule); n != 2 {
				t.Errorf("admitted %d after 8 of 10", n)
			}
			if n := admitted(t, with, rule); n != 0 {
				t.Errorf("admitted %d after 10 of 10", n)
			}
		})
	}
}

// TestHintsUndoNothing checks that a hint changes nothing on the server that it came from.
func TestHintsUndoNothing(t *testing.T) {
	server := redistest.Start(t)
	ctx := context.Background()
	var other *Store
	for name, limit := range hinted {
		rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: name, Limit: limit}))
		take := sluice.Take{Rule: rule, Key: "k", Cost: 1}
		for _, c := range []struct {
			name string
			do   func(last sluice.Decision) error
			left int64 // of 10, 7 of which were taken
		}{
			{"nothing", func(sluice.Decision) error { return nil }, 3},
			{"reset", func(sluice.Decision) error { return other.Reset(ctx, sluice.Bucket{Rule: rule, Key: "k"}) }, 10},
			{"refunded", func(last sluice.Decision) error {
				back := sluice.Take{Rule: rule, Key: "k", Cost: -1, Receipt: last.Receipt}
				return other.Apply(ctx, []sluice.Take{back}, make([]sluice.Decision, 1))
			}, 4},
			{"block lifted", func(sluice.Decision) error {
				return errors.Join(other.Block(ctx, sluice.Bucket{Rule: rule, Key: "k"}, time.Hour), other.Block(ctx, sluice.Bucket{Rule: rule, Key: "k"}, 0))
			}, 3},
			{"other limit parameters", func(sluice.Decision) error { // under which this take takes less time
				more := limit
				more.Count *= 10
				changed := take
				changed.Limit = sluice.Must(more.Build())
				return other.Apply(ctx, []sluice.Take{changed}, make([]sluice.Decision, 1))
			}, -1},
		} {
			t.Run(name+"/"+c.name, func(t *testing.T) {
				if _, err := server.Do("FLUSHALL"); err != nil {
					t.Fatal(err)
				}
				s := openHinting(t, server)
				other = openHinting(t, server)
				control := openHinting(t, server).WithoutHints()
				var last sluice.Decision
				for range 7 {
					last = try(t, s, take)[0]
				}
				see(t, s, rule)
				if err := c.do(last); err != nil {
					t.Fatal(err)
				}
				want := try(t, control, sluice.Take{Rule: rule, Key: "k"})[0]
				if c.left >= 0 && limit.SoftExcess == 0 && want.Remaining != c.left {
					t.Fatalf("Remaining is %d, want %d: error in the test", want.Remaining, c.left)
				}
				before := s.hints.epoch.Load()
				if _, err := server.Do("CLIENT", "KILL", "TYPE", "normal"); err != nil {
					t.Fatal(err)
				}
				for s.hints.epoch.Load() == before { // until disconnected and connected again
					try(t, s, sluice.Take{Rule: rule, Key: "elsewhere"})
				}
				got := see(t, s, rule)
				if got != want || s.FailoverRestores() != 0 {
					t.Errorf("a hint was applied:\n got %+v\nwant %+v", got, want)
				}
			})
		}
	}
}

// TestHintsHaveNoMarks checks that a state restored by a hint has no marks, so that a settlement does not refund what
// others may have used.
func TestHintsHaveNoMarks(t *testing.T) {
	server := redistest.Start(t)
	s := openHinting(t, server)
	rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: "r", Limit: sluice.PerHour(10)}))
	made := try(t, s, sluice.Take{Rule: rule, Key: "k", Cost: 7, Settles: true})[0]
	see(t, s, rule)
	server.Kill()
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	see(t, s, rule)
	back := sluice.Take{Rule: rule, Key: "k", Cost: -7, Receipt: made.Receipt, Charged: 7, ChargedOf: made.Limit, Settles: true}
	if d := try(t, s, back)[0]; d.Granted != 0 || d.Remaining != 3 || s.FailoverRestores() != 1 {
		t.Errorf("settlement: %+v, %d restored", d, s.FailoverRestores())
	}
}

// TestResetIsForgotten checks that a reset by this process also removes its hint, regardless of the server that
// replies.
func TestResetIsForgotten(t *testing.T) {
	rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: "r", Limit: sluice.PerHour(10)}))
	for name, reset := range map[string]func(s *Store, server *redistest.Server) error{
		"a key": func(s *Store, _ *redistest.Server) error {
			return s.Reset(t.Context(), sluice.Bucket{Rule: rule, Key: "k"})
		},
		"a rule that the server has lost": func(s *Store, server *redistest.Server) error {
			if _, err := server.Do("FLUSHALL"); err != nil {
				return err
			}
			_, err := s.ResetRules(t.Context(), sluice.ResetOptions{Rules: []*sluice.Rule{rule}})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			s := openHinting(t, server)
			try(t, s, sluice.Take{Rule: rule, Key: "k", Cost: 7})
			see(t, s, rule)
			if err := reset(s, server); err != nil {
				t.Fatal(err)
			}
			server.Kill()
			if err := server.Restart(); err != nil {
				t.Fatal(err)
			}
			try(t, s, sluice.Take{Rule: rule, Key: "elsewhere"})
			if n := admitted(t, s, rule); n != 10 || s.FailoverRestores() != 0 {
				t.Errorf("admitted %d after a reset, %d restored", n, s.FailoverRestores())
			}
		})
	}
}

// TestWithoutInfo checks that a user without the permission INFO gets the same decisions, without hints.
func TestWithoutInfo(t *testing.T) {
	server := redistest.Start(t)
	setUser := func() {
		if _, err := server.Do("ACL", "SETUSER", "limiter", "on", ">secret", "~sluice:*", "+@all", "-info"); err != nil {
			t.Fatal(err)
		}
	}
	setUser()
	s := sluice.Must(Open(Config{URL: "redis://limiter:secret@" + server.Addr, Now: noon}))
	defer s.Close()
	rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: "r", Limit: sluice.PerHour(10)}))
	if n := admitted(t, s, rule); n != 10 {
		t.Errorf("admitted %d of 10", n)
	}
	for range 20 {
		try(t, s, sluice.Take{Rule: rule, Key: "k"})
	}
	if o := s.hints.origins[0].Load(); o == nil || o.server != "" {
		t.Errorf("the run ID is recorded: %+v", o)
	}
	server.Kill()
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	setUser()
	var err error
	for range 100 {
		if err = s.Apply(t.Context(), []sluice.Take{{Rule: rule, Key: "k", Cost: 1}}, make([]sluice.Decision, 1)); err == nil {
			return
		}
	}
	t.Errorf("after a restart: error %v", err)
}

// TestAskedAnyway checks that with a client of the caller, and without a failed call, another server is noticed because
// its run ID is requested periodically.
func TestAskedAnyway(t *testing.T) {
	server := redistest.Start(t)
	client := dialServer(t, server)
	s := sluice.Must(Open(Config{Client: client, Now: noon}))
	rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: "r", Limit: sluice.PerHour(10)}))
	try(t, s, sluice.Take{Rule: rule, Key: "k", Cost: 7})
	server.Kill()
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	for client.Do(t.Context(), client.B().Ping().Build()).Error() != nil {
	}
	s.hints.asked.Store(-int64(time.Hour))
	try(t, s, sluice.Take{Rule: rule, Key: "elsewhere"})
	if n := admitted(t, s, rule); n != 3 || s.FailoverRestores() != 1 {
		t.Errorf("admitted %d after 7 of 10, %d restored", n, s.FailoverRestores())
	}
}

// TestWhoseWord checks that a reply of an unknown server, received while the server may have changed, does not replace
// the recorded state of the old server.
func TestWhoseWord(t *testing.T) {
	client := dialServer(t, redistest.Start(t))
	s := sluice.Must(Open(Config{Client: client, Now: noon}))
	seen := func(meanwhile func()) (until int64, asked bool, hints int) {
		c := groupOf(1, 1)
		c.place()
		s.hints.addHints(c, s.micro())
		r, err := s.send(context.Background(), c, s.micro())
		if err == nil {
			err = c.replay(r)
		}
		if err != nil {
			t.Fatal(err)
		}
		meanwhile()
		s.hints.learn(c, r, s.micro())
		last, _ := s.hints.recall(c.cells[0].hash)
		return last.state.ExpiresAt, r.told, len(c.hints)
	}
	nothing, another := func() {}, func() { s.hints.epoch.Add(1) }
	first, asked, hints := seen(nothing)
	if !asked || hints != 0 {
		t.Errorf("first call of an epoch: run ID requested %v, %d hints", asked, hints)
	}
	second, asked, hints := seen(nothing)
	if asked || hints != 0 || second <= first {
		t.Errorf("second call of an epoch: run ID requested %v, %d hints, expiry %d then %d", asked, hints, first, second)
	}
	if third, _, _ := seen(another); third != second {
		t.Errorf("reply across two epochs: expiry %d, want %d", third, second)
	}
	if fourth, asked, hints := seen(another); !asked || hints != 1 || fourth <= second {
		t.Errorf("reply with a run ID: requested %v, %d hints, expiry %d, was %d", asked, hints, fourth, second)
	}
}

// TestUntold checks that a state is not replaced by that of another server that did not receive it as a hint.
func TestUntold(t *testing.T) {
	var h failoverHints
	h.init(false)
	told := func(server string, until int64, hinted bool) int64 {
		at := cell{kind: step.Bucket, state: step.State{ExpiresAt: until}, hinted: hinted}
		h.remember(&at, &serverEpoch{server: server}, 1000)
		seen, _ := h.recall(0)
		return seen.state.ExpiresAt
	}
	for i, c := range []struct {
		server      string
		until, want int64
		hinted      bool
	}{
		{"a", 5000, 5000, false},
		{"b", 2000, 5000, false},
		{"b", 0, 5000, false},
		{"a", 4000, 4000, false}, // refunded
		{"b", 2000, 2000, true},
		{"b", 0, 0, false},
	} {
		if got := told(c.server, c.until, c.hinted); got != c.want {
			t.Errorf("%d: expiry %d, want %d", i, got, c.want)
		}
	}
}

// TestSuspicion checks that failed calls end an epoch, at most once per interval, and that calls cancelled by their
// callers do not.
func TestSuspicion(t *testing.T) {
	s := sluice.Must(Open(Config{Client: dialServer(t, redistest.Shared(t))}))
	epoch := func() uint64 {
		c := groupOf(1, 1)
		c.place()
		s.hints.addHints(c, 0)
		return c.epoch
	}
	first := epoch()
	s.hints.failed(fmt.Errorf("%w", context.Canceled))
	if n := epoch(); n != first {
		t.Errorf("epoch %d after a cancelled call, was %d", n, first)
	}
	for range 10 {
		s.hints.failed(context.DeadlineExceeded)
		if n := epoch(); n != first+1 {
			t.Errorf("epoch %d after exceeded deadlines, want %d", n, first+1)
		}
	}
	s.hints.ended.Store(-int64(time.Hour))
	if n := epoch(); n != first+2 {
		t.Errorf("epoch %d after more of them later, want %d", n, first+2)
	}
}

// TestHintsAreBounded checks the bound on the number of stored states, and that states that expire late are preferred.
func TestHintsAreBounded(t *testing.T) {
	var h failoverHints
	h.init(false)
	from := &serverEpoch{server: strings.Repeat("a", 40)}
	const now, keys = 1000, 3 * hintShards * maxHintsPerShard
	long := 0
	for i := range uint64(keys) {
		at := cell{kind: step.Bucket, hash: i * 0x9E3779B97F4A7C15 >> 3, state: step.State{ExpiresAt: now + 1}}
		if i%4 == 0 {
			at.state.ExpiresAt = now + 1000
		}
		h.remember(&at, from, now)
	}
	total := 0
	for i := range h.shards {
		total += len(h.shards[i].lastStates)
		for _, seen := range h.shards[i].lastStates {
			if seen.state.ExpiresAt > now+1 {
				long++
			}
		}
	}
	if total > hintShards*maxHintsPerShard || total < hintShards*maxHintsPerShard*9/10 || long < total*5/10 {
		t.Errorf("of %d keys %d are stored, %d of them long-lived", keys, total, long)
	}
	// An expired state is removed.
	at := cell{kind: step.Bucket, hash: 0, state: step.State{ExpiresAt: now}}
	h.remember(&at, from, now)
	if _, ok := h.recall(0); ok {
		t.Error("an expired state is stored")
	}
}
