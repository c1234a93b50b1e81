package redisstore

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/private"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
)

// TestMarksAreStored checks that a bucket is one integer, has marks while there are open reservations, and is one
// integer again after the last settlement. Ordinary takes in between do not change its form.
func TestMarksAreStored(t *testing.T) {
	server := redistest.Start(t)
	now := time.Date(2026, time.May, 1, 12, 0, 0, 0, time.UTC)
	store := sluice.Must(Open(Config{URL: server.URL(), KeyPrefix: t.Name(), Now: func() time.Time { return now }}))
	defer store.Close()
	rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: "r", Limit: sluice.PerSecond(1).WithBurst(1000)}))
	apply := func(take sluice.Take) sluice.Decision {
		t.Helper()
		take.Rule, take.Key = rule, "k"
		out := make([]sluice.Decision, 1)
		if err := store.Apply(context.Background(), []sluice.Take{take}, out); err != nil {
			t.Fatal(err)
		}
		return out[0]
	}
	do := func(command ...string) string {
		t.Helper()
		reply, err := server.Do(command...)
		if err != nil {
			t.Fatal(err)
		}
		return reply
	}
	stored := string(store.names.state(nil, &name{rule: private.RuleOf(rule).ID, key: "k"}, private.ParamsOf(&rule.Limit)))
	// form returns the number of stored marks, or -1 if the state is an integer.
	form := func() int {
		t.Helper()
		text := do("GET", stored)
		if _, err := strconv.ParseInt(text, 10, 64); err == nil {
			return -1
		}
		if !strings.HasPrefix(text, letterMarks) {
			t.Fatalf("stored as %q", text)
		}
		return len(text)/(3*markBytes) - 1
	}
	kept := func(want time.Duration) {
		t.Helper()
		ms, err := strconv.ParseInt(do("PTTL", stored), 10, 64)
		if got := time.Duration(ms)*time.Millisecond - virtualClockTTLMillis*time.Millisecond; err != nil || got > want || got < want-10*time.Second {
			t.Errorf("TTL is %v, want %v", got, want)
		}
	}
	apply(sluice.Take{Cost: 10})
	apply(sluice.Take{Cost: 10})
	if n := form(); n != -1 {
		t.Fatalf("without reservations: %d marks", n)
	}
	var out []sluice.Decision
	sizes := map[int]int64{}
	for i := range 40 {
		now = now.Add(time.Millisecond)
		out = append(out, apply(sluice.Take{Cost: 10, Settles: true}))
		if n := form(); n != min(i+1, 32) {
			t.Fatalf("with %d open reservations: %d marks", i+1, n)
		}
		sizes[i+1], _ = strconv.ParseInt(do("MEMORY", "USAGE", stored), 10, 64)
	}
	t.Logf("bytes with marks: 1: %d, 2: %d, 8: %d, 32: %d", sizes[1], sizes[2], sizes[8], sizes[32])
	for n, most := range map[int]int64{1: 136, 2: 168, 8: 296, 32: 872} { // with a key of this length
		if sizes[n] > most+int64(len(stored)) {
			t.Errorf("%d marks take %d bytes", n, sizes[n])
		}
	}
	kept(420 * time.Second)
	if d := apply(sluice.Take{Cost: 5}); !d.Allowed || form() != 32 {
		t.Errorf("ordinary take in between: %+v, %d marks", d, form())
	}
	now = now.Add(time.Second)
	before := apply(sluice.Take{}).Remaining
	for i, d := range out {
		back := apply(sluice.Take{Receipt: d.Receipt, Cost: -10, Charged: 10, ChargedOf: d.Limit, Settles: true})
		if back.Granted != -10 && (i < 8 || back.Granted > 0) { // merged marks may refund less
			t.Errorf("settlement %d: %+v", i, back)
		}
		if n, last := form(), i == len(out)-1; last != (n == -1) {
			t.Errorf("after settlement %d: %d marks", i, n)
		}
	}
	if after := apply(sluice.Take{}).Remaining; after < before+8*10 {
		t.Errorf("Remaining is %d before, %d after all was refunded", before, after)
	}
	apply(sluice.Take{Cost: 1})
	if n := form(); n != -1 {
		t.Errorf("at the end: %d marks", n)
	}
}

// TestReservationOfSeveralSlots checks that in a Cluster a reservation that one hash slot granted and another denied is
// refunded through its mark, and leaves none.
func TestReservationOfSeveralSlots(t *testing.T) {
	server := redistest.Start(t)
	store := sluice.Must(Open(Config{URL: server.URL()}))
	defer store.Close()
	store.names.tagged = true // as in a Cluster whose slots are all on this server
	rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: "r", Limit: sluice.PerHour(10)}))
	apply := func(takes ...sluice.Take) []sluice.Decision {
		t.Helper()
		out := make([]sluice.Decision, len(takes))
		if err := store.Apply(t.Context(), takes, out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	reserve := func(key string, cost int64) sluice.Take {
		return sluice.Take{Rule: rule, Key: key, Cost: cost, Settles: true}
	}
	apply(reserve("b", 8))
	first := apply(reserve("a", 1))[0]
	if out := apply(reserve("a", 5), reserve("b", 5)); !out[0].Allowed || out[1].Allowed || out[0].Granted != 0 || out[0].Remaining != 9 {
		t.Fatalf("%+v", out)
	}
	back := apply(sluice.Take{Rule: rule, Key: "a", Cost: -1, Receipt: first.Receipt, Charged: 1, Settles: true})[0]
	if back.Remaining != 10 { // less than a whole unit was refunded, because some of it had expired
		t.Errorf("%+v", back)
	}
	keys, err := server.Do("KEYS", "*"+string(store.names.state(nil, &name{rule: private.RuleOf(rule).ID, key: "a"}, private.ParamsOf(&rule.Limit))))
	if err != nil || keys != "" {
		t.Errorf("keys left: %q, %v", keys, err)
	}
}

// TestRefundOfTooMuch checks that the refund at the server equals that of the decision, even if the take claims to have
// cost more than the refill of 100 years and lies in the future.
func TestRefundOfTooMuch(t *testing.T) {
	server := redistest.Start(t)
	now := time.Date(2026, time.May, 1, 12, 0, 0, 0, time.UTC)
	store := sluice.Must(Open(Config{URL: server.URL(), KeyPrefix: t.Name(), Now: func() time.Time { return now }}))
	defer store.Close()
	rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: "r", Limit: sluice.PerMinute(100)}))
	var left []int64
	for _, take := range []sluice.Take{
		{Cost: 50},
		{Cost: -sluice.MaxCost / 2, Receipt: now.Add(time.Second).UnixMicro(), Charged: sluice.MaxCost},
		{},
	} {
		take.Rule, take.Key = rule, "k"
		out := make([]sluice.Decision, 1)
		if err := store.Apply(context.Background(), []sluice.Take{take}, out); err != nil {
			t.Fatal(err)
		}
		left = append(left, out[0].Remaining)
	}
	if left[1] != left[2] {
		t.Errorf("Remaining is %d after the refund, then %d", left[1], left[2])
	}
}
