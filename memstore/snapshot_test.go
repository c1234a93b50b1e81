package memstore_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/memstore"
)

// Two processes that save to the same file at the same time leave one complete snapshot, and nothing else.
func TestSnapshotOfTwo(t *testing.T) {
	directory := t.TempDir()
	file := filepath.Join(directory, "state")
	limit := sluice.Per(1000, 24*time.Hour).WithAlgorithm(sluice.FixedWindow)
	var stores [2]*memstore.Store
	for n := range stores { // before either saves, because a later one would load the snapshot of the other
		var err error
		if stores[n], err = memstore.Open(memstore.Config{SnapshotFile: file}); err != nil {
			t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	for n := range int64(2) {
		all.Go(func() {
			store := stores[n]
			l := sluice.Must(sluice.New(store, "r", limit))
			for i := range 200 {
				if _, err := l.AllowN(background, fmt.Sprintf("%d-%d", n, i), 10*(n+1)); err != nil {
					t.Error(err)
				}
			}
			for range 20 {
				if err := store.SaveSnapshot(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 40 {
		if _, err := memstore.Open(memstore.Config{SnapshotFile: file}); err != nil {
			t.Errorf("while both save: %v", err)
		}
	}
	all.Wait()
	store, err := memstore.Open(memstore.Config{SnapshotFile: file})
	if err != nil {
		t.Fatal(err)
	}
	l := sluice.Must(sluice.New(store, "r", limit))
	var whole [2]int
	for n := range whole {
		for i := range 200 {
			d, err := l.AllowN(background, fmt.Sprintf("%d-%d", n, i), 1)
			if err != nil {
				t.Fatal(err)
			}
			if d.Remaining == 999-10*int64(n+1) {
				whole[n]++
			}
		}
	}
	if whole != [2]int{200, 0} && whole != [2]int{0, 200} {
		t.Errorf("of the two snapshots there are %v of 200 keys each", whole)
	}
	left, err := os.ReadDir(directory)
	if err != nil || len(left) != 1 {
		t.Errorf("beside the snapshot there are %v, %v", left, err)
	}
}

// A snapshot that was saved while the clock was wrong by years, in either direction, denies no key for longer than the
// period of its limit.
func TestSnapshotOfAnotherTime(t *testing.T) {
	now := time.Date(2026, 3, 2, 1, 0, 0, 0, time.UTC)
	for _, by := range []time.Duration{-20 * 365 * 24 * time.Hour, -time.Hour, time.Hour, 24 * time.Hour, 20 * 365 * 24 * time.Hour} {
		for _, a := range []sluice.Algorithm{sluice.TokenBucket, sluice.FixedWindow, sluice.SlidingWindowLog, sluice.SlidingWindowCounter} {
			t.Run(fmt.Sprintf("%v %v", by, a), func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "state")
				limit := sluice.Per(10, time.Minute).WithAlgorithm(a)
				saved, err := memstore.Open(memstore.Config{SnapshotFile: file, Now: func() time.Time { return now.Add(by) }})
				if err != nil {
					t.Fatal(err)
				}
				l := sluice.Must(sluice.New(saved, "r", limit))
				for range 15 {
					if _, err := l.Allow(background, "k"); err != nil {
						t.Fatal(err)
					}
				}
				if err := saved.SaveSnapshot(); err != nil {
					t.Fatal(err)
				}
				clock := now
				store, err := memstore.Open(memstore.Config{SnapshotFile: file, Now: func() time.Time { return clock }})
				if err != nil {
					t.Fatal(err)
				}
				l = sluice.Must(sluice.New(store, "r", limit))
				d, err := l.Allow(background, "k")
				if err != nil {
					t.Fatal(err)
				}
				if d.RetryAfter < 0 || d.RetryAfter > 2*time.Minute || d.ResetAfter > 3*time.Minute {
					t.Errorf("retry after %v, reset after %v", d.RetryAfter, d.ResetAfter)
				}
				clock = now.Add(2 * time.Minute)
				if d, err := l.Allow(background, "k"); err != nil || !d.Allowed {
					t.Errorf("two periods later: %+v, %v", d, err)
				}
			})
		}
	}
}

// A snapshot that cannot be written leaves the previous one, and no partial file.
func checkUnwritable(t *testing.T, file string, store *memstore.Store) {
	t.Helper()
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.SaveSnapshot(); err == nil || !strings.HasPrefix(err.Error(), "memstore: save: ") {
		t.Errorf("saving says %v", err)
	}
	after, err := os.ReadFile(file)
	if err != nil || string(after) != string(before) {
		t.Errorf("the snapshot was of %d bytes and is of %d, %v", len(before), len(after), err)
	}
	parts, err := filepath.Glob(file + ".tmp-*")
	if err != nil || len(parts) > 0 {
		t.Errorf("there are %v", parts)
	}
}

// A snapshot of the previous version keeps its meaning, also if it is saved again in between.
func TestSnapshotOfTheVersionBefore(t *testing.T) {
	now := time.Date(2026, 3, 2, 1, 0, 0, 0, time.UTC)
	was, err := os.ReadFile("testdata/snapshot-1")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "state")
	if err := os.WriteFile(file, was, 0o600); err != nil {
		t.Fatal(err)
	}
	open := func() *memstore.Store {
		return sluice.Must(memstore.Open(memstore.Config{MaxBytes: 1 << 20, SnapshotFile: file, Now: func() time.Time { return now }}))
	}
	if err := open().SaveSnapshot(); err != nil {
		t.Fatal(err)
	}
	store := open()
	for _, c := range []struct {
		name      string
		limit     sluice.Limit
		remaining int64
		reset     time.Duration
	}{
		{"day", sluice.PerDay(10), 6, 9*time.Hour + 36*time.Minute},
		{"week", sluice.PerDay(7), 4, 10*time.Hour + 17*time.Minute + 8*time.Second + 571_429*time.Microsecond},
		{"reserved", sluice.PerDay(10), 6, 9*time.Hour + 36*time.Minute},
		{"interval", sluice.Limit{Count: 4, Window: time.Hour, Burst: 8, Refill: sluice.RefillInterval}, 5, time.Hour},
		{"window", sluice.PerDay(10).WithAlgorithm(sluice.FixedWindow), 6, 23 * time.Hour},
		{"counter", sluice.PerDay(10).WithAlgorithm(sluice.SlidingWindowCounter), 6, 47 * time.Hour},
		{"log", sluice.PerDay(10).WithAlgorithm(sluice.SlidingWindowLog), 6, 24 * time.Hour},
	} {
		rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: c.name, Limit: c.limit}))
		for range 2 { // before and after it is converted
			out := make([]sluice.Decision, 1)
			if err := store.Apply(background, []sluice.Take{{Rule: rule, Key: "k"}}, out); err != nil {
				t.Fatal(err)
			}
			if out[0].Remaining != c.remaining || out[0].ResetAfter != c.reset {
				t.Errorf("%s: %d remain, reset after %v; want %d, %v", c.name, out[0].Remaining, out[0].ResetAfter, c.remaining, c.reset)
			}
		}
		if c.name == "reserved" {
			out := make([]sluice.Decision, 1)
			back := sluice.Take{Rule: rule, Key: "k", Receipt: now.UnixMicro(), Cost: -4, Charged: 4, ChargedOf: 10, Settles: true}
			if err := store.Apply(background, []sluice.Take{back}, out); err != nil || out[0].Remaining != 10 {
				t.Errorf("cancelling the reservation: %+v, %v", out[0], err)
			}
		}
	}
}

// A process with other numbers reads the previous numbers from the snapshot.
func TestSnapshotKeepsNumbers(t *testing.T) {
	now := time.Date(2026, 3, 2, 1, 0, 0, 0, time.UTC)
	file := filepath.Join(t.TempDir(), "state")
	open := func() *memstore.Store {
		return sluice.Must(memstore.Open(memstore.Config{MaxBytes: 1 << 20, SnapshotFile: file, Now: func() time.Time { return now }}))
	}
	for _, c := range []struct {
		limit     sluice.Limit
		cost      int64
		remaining int64
		reset     time.Duration
	}{
		{sluice.PerMinute(10), 4, 6, 24 * time.Second},
		{sluice.PerDay(10), 0, 6, 9*time.Hour + 36*time.Minute},
		{sluice.PerSecond(100), 40, 20, 800 * time.Millisecond}, // no key is used under this limit
		{sluice.PerMinute(20), 0, 4, 48 * time.Second},
	} {
		store := open()
		l := sluice.Must(sluice.New(store, "r", c.limit))
		d, err := l.Peek(background, "k")
		if c.cost > 0 {
			d, err = l.AllowN(background, "k", c.cost)
		}
		if err != nil || d.Remaining != c.remaining || d.ResetAfter != c.reset {
			t.Errorf("%v: %+v, %v; want %d remaining, reset after %v", c.limit, d, err, c.remaining, c.reset)
		}
		if err := store.SaveSnapshot(); err != nil {
			t.Fatal(err)
		}
	}
}
