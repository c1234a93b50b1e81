package memcachestore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/testenv/memcachetest"
	"github.com/sluiceproject/sluice/memcachestore"
)

// openAtOneMoment returns a function that opens a store, like another process, with a clock that stands still.
func openAtOneMoment(t *testing.T) func() *memcachestore.Store {
	addr := memcachetest.Start(t).Addr
	now := time.Date(2026, 3, 2, 1, 0, 0, 0, time.UTC)
	return func() *memcachestore.Store {
		return openStore(t, memcachestore.Config{Addrs: []string{addr}, Now: func() time.Time { return now }})
	}
}

// TestNumbersOfOthers checks that processes convert states of other processes with other limit parameters, by their
// record.
func TestNumbersOfOthers(t *testing.T) {
	open := openAtOneMoment(t)
	first, second := open(), open()
	minute, daily := newRule("r", sluice.PerMinute(10)), newRule("r", sluice.PerDay(10))
	apply(t, second, sluice.Take{Rule: daily, Key: "another", Cost: 1}) // before the first has recorded its own
	apply(t, first, sluice.Take{Rule: minute, Key: "k", Cost: 4})
	if d := apply(t, second, sluice.Take{Rule: daily, Key: "k"})[0]; d.Remaining != 6 || d.ResetAfter != 9*time.Hour+36*time.Minute {
		t.Errorf("in a process that had read the record before: %+v", d)
	}
	if d := apply(t, open(), sluice.Take{Rule: newRule("r", sluice.PerSecond(100)), Key: "k", Cost: 10})[0]; d.Remaining != 50 {
		t.Errorf("in a new process: %+v", d)
	}
	if d := apply(t, first, sluice.Take{Rule: minute, Key: "k"})[0]; d.Remaining != 5 {
		t.Errorf("back in the first: %+v", d)
	}
}

// TestNumbersOfOthersThatLookOld checks that a shape that the previous version would have used for states of this limit
// is looked up like others.
func TestNumbersOfOthersThatLookOld(t *testing.T) {
	open := openAtOneMoment(t)
	first, second := open(), open()
	daily, minute := newRule("r", sluice.PerDay(29)), newRule("r", sluice.PerMinute(31))
	apply(t, second, sluice.Take{Rule: minute, Key: "another", Cost: 1}) // before the first has recorded its own
	apply(t, first, sluice.Take{Rule: daily, Key: "k", Cost: 29})
	if d := apply(t, second, sluice.Take{Rule: minute, Key: "k"})[0]; d.Remaining != 0 || d.ResetAfter > time.Minute {
		t.Errorf("%+v, want Remaining 0 and ResetAfter of a minute", d)
	}
}

// TestNumbersForgotten checks that without the record, which Memcached may evict like any value, a state of other limit
// parameters counts as fully used, and a state of the same parameters does not need it.
func TestNumbersForgotten(t *testing.T) {
	server := memcachetest.Start(t)
	now := time.Date(2026, 3, 2, 1, 0, 0, 0, time.UTC)
	open := func() *memcachestore.Store {
		return openStore(t, memcachestore.Config{Addrs: []string{server.Addr}, Now: func() time.Time { return now }})
	}
	first := open()
	minute, daily := newRule("r", sluice.PerMinute(10)), newRule("r", sluice.PerDay(10))
	apply(t, first, sluice.Take{Rule: minute, Key: "k", Cost: 4})
	record := first.RecordName(minute)
	for name, damage := range map[string]func(){
		"deleted": func() { server.Ask("md " + record) },
		"damaged": func() { store(t, server, record, raw(t, server, record)+"x") },
		"foreign": func() { store(t, server, record, "hello") },
	} {
		damage()
		third := open()
		if d := apply(t, third, sluice.Take{Rule: minute, Key: "k"})[0]; d.Remaining != 6 {
			t.Errorf("%s: under the same limit: %+v", name, d)
		}
		damage()
		if d := apply(t, open(), sluice.Take{Rule: daily, Key: "k", DryRun: true})[0]; d.Remaining != 0 || d.ResetAfter != 24*time.Hour {
			t.Errorf("%s: under another limit: %+v", name, d)
		}
	}
}

// TestVersionBefore: processes of the previous version and of this one share keys during a rolling restart, and
// continue each other's states under the same limit. These values were written by the previous version, with 3
// reserved.
func TestVersionBefore(t *testing.T) {
	server := memcachetest.Start(t)
	now := time.Date(2026, 3, 2, 1, 0, 0, 0, time.UTC)
	s := openStore(t, memcachestore.Config{Addrs: []string{server.Addr}, Now: func() time.Time { return now }})
	for _, c := range []struct {
		limit     sluice.Limit
		stored    string
		remaining int64
		reset     time.Duration
		cancelled int64 // Remaining after the reservation is cancelled
	}{
		{sluice.PerDay(10), "\x01N\xcb\xea\xe9\x00\x01\x01>\x80舡–\x03\x00\n\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00d.\x1b\x00L\x06\x00\x00\xd0\xf3\b\x06\x00\x00\x00\x00\xd0\xf3\b\x06\x00\x00\x00\x00", 7, 7*time.Hour + 12*time.Minute, 10},
		{sluice.PerDay(7), "\x01\xa5\x1b\x14o\x00\x01\x01%\xa5\x9a\x86ҋ\x81\x93\x03\x03\n\x03\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00d.\x1b\x00L\x06\x00$)\x13\x9f\b\x00\x00\x00%)\x13\x9f\b\x00\x00\x00\x00", 4, 10*time.Hour + 17*time.Minute + 8*time.Second + 571_429*time.Microsecond, 6}, // marks are whole microseconds, rounded down
		{sluice.Limit{Count: 4, Window: time.Hour, Burst: 8, Refill: sluice.RefillInterval}, "\x01\xee\xaf1y\x00\x01\x02N\x80\x90\x88\x8e\x8f\x80\x93\x03\x01\n\x01\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00d.\x1b\x00L\x06\x00\x03\x00\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00\x00", 5, time.Hour, 8},
		{sluice.PerDay(10).WithAlgorithm(sluice.SlidingWindowCounter), "\x01d\xcf#\xa5\x00\x01\x04u\x80\x80\xa6\x82\xf8\x84\x93\x03\x03\x01\x00", 7, 47 * time.Hour, 10},
	} {
		rule := newRule("r"+c.limit.String(), c.limit)
		store(t, server, s.ItemName(rule, "k"), c.stored)
		for range 2 { // before and after it is converted
			if d := apply(t, s, sluice.Take{Rule: rule, Key: "k"})[0]; d.Remaining != c.remaining || d.ResetAfter != c.reset {
				t.Errorf("%v: Remaining is %d, ResetAfter %v; want %d, %v", c.limit, d.Remaining, d.ResetAfter, c.remaining, c.reset)
			}
		}
		back := sluice.Take{Rule: rule, Key: "k", Receipt: now.UnixMicro(), Cost: -3, Charged: 3, Settles: true}
		if d := apply(t, s, back)[0]; d.Remaining != c.cancelled {
			t.Errorf("%v: Remaining is %d after the reservation is cancelled", c.limit, d.Remaining)
		}
	}
}

// store writes a value to a stored key.
func store(t *testing.T, server *memcachetest.Server, name, value string) {
	t.Helper()
	if answer := server.Ask(fmt.Sprintf("ms %s %d T1000\r\n%s", name, len(value), value)); answer != "HD" {
		t.Fatal(answer)
	}
}
