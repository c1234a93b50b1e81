package memstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/memstore"
)

// listAll reads all pages.
func listAll(t testing.TB, s *memstore.Store, q sluice.ListOptions, each func()) (all []sluice.BucketInfo) {
	t.Helper()
	for {
		page, err := s.List(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if q.PageSize > 0 && len(page.Buckets) > q.PageSize {
			t.Fatalf("%d buckets in a page of %d", len(page.Buckets), q.PageSize)
		}
		all = append(all, page.Buckets...)
		if each != nil {
			each()
		}
		if page.NextPageToken == "" {
			return all
		}
		q.PageToken = page.NextPageToken
	}
}

func listRules() (rules []*sluice.Rule) {
	for _, a := range []sluice.Algorithm{sluice.TokenBucket, sluice.LeakyBucket, sluice.FixedWindow, sluice.SlidingWindowCounter, sluice.SlidingWindowLog} {
		limit := sluice.PerMinute(10)
		limit.Algorithm = a
		rules = append(rules, sluice.Must(sluice.NewRule(sluice.Rule{Name: fmt.Sprint(a), Limit: limit})))
	}
	return rules
}

// List returns exactly the buckets that a peek finds to be in use, after any takes, refunds, resets, blocks and
// expiries.
func TestListEqualsPeek(t *testing.T) {
	rules := listRules()
	for seed := range uint64(3) {
		random := rand.New(rand.NewPCG(seed, 1))
		now := time.Unix(1_700_000_000, 0)
		store := sluice.Must(memstore.Open(memstore.Config{KeepKeys: true, Now: func() time.Time { return now }}))
		keys := make([]string, 40)
		for i := range keys {
			keys[i] = fmt.Sprint("key-", i)
		}
		blocked := map[string]time.Time{}
		listed := 0
		for range 60 {
			for range 20 {
				rule, key := rules[random.IntN(len(rules))], keys[random.IntN(len(keys))]
				b := sluice.Bucket{Rule: rule, Key: key}
				id := rule.Name + " " + key
				switch random.IntN(12) {
				case 0:
					if err := store.Reset(t.Context(), b); err != nil {
						t.Fatal(err)
					}
					delete(blocked, id)
				case 1:
					d := time.Duration(random.IntN(60)) * time.Second
					if err := store.Block(t.Context(), b, d); err != nil {
						t.Fatal(err)
					}
					blocked[id] = now.Add(d)
				case 2:
					now = now.Add(time.Duration(random.IntN(30_000)) * time.Millisecond)
				case 3:
					if _, err := store.ResetRules(t.Context(), sluice.ResetOptions{Rules: []*sluice.Rule{rule}}); err != nil {
						t.Fatal(err)
					}
					for _, k := range keys {
						delete(blocked, rule.Name+" "+k)
					}
				default:
					other := sluice.Take{Rule: rules[random.IntN(len(rules))], Key: keys[random.IntN(len(keys))], Cost: 1}
					takes := []sluice.Take{{Rule: rule, Key: key, Cost: int64(random.IntN(4))}, other}
					if err := store.Apply(t.Context(), takes[:1+random.IntN(2)], make([]sluice.Decision, 2)); err != nil {
						t.Fatal(err)
					}
				}
			}
			var want, got []string
			for _, rule := range rules {
				for _, key := range keys {
					id := rule.Name + " " + key
					isBlocked := blocked[id].After(now)
					if isBlocked {
						want = append(want, id+" blocked")
					}
					peek := []sluice.Take{{Rule: rule, Key: key, DryRun: true}}
					var d [1]sluice.Decision
					if err := store.Apply(t.Context(), peek, d[:]); err != nil {
						t.Fatal(err)
					}
					if !isBlocked && d[0].ResetAfter > 0 {
						want = append(want, id)
					}
				}
			}
			for _, b := range listAll(t, store, sluice.ListOptions{Rules: rules, PageSize: 1 + random.IntN(50)}, nil) {
				id := b.Rule.Name + " " + b.Key
				switch {
				case b.ExpiresIn <= 0 || b.Blocked == (b.Kind != ""):
					t.Fatalf("%+v", b)
				case b.Blocked:
					got = append(got, id+" blocked")
				case !blocked[id].After(now): // a peek does not show the bucket of a blocked key
					got = append(got, id)
				}
			}
			slices.Sort(want)
			slices.Sort(got)
			if !slices.Equal(want, got) {
				t.Fatalf("seed %d:\n%q are there,\n%q are listed", seed, want, got)
			}
			listed += len(got)
		}
		if listed < 500 {
			t.Errorf("only %d buckets were listed: the test shows nothing", listed)
		}
	}
}

// Many keys with a window of an hour and a flood of keys with a window of a second: keys of the hour that found room
// stay, keys of the second replace each other when they have expired, and the store stays within its memory limit.
func TestListRoom(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	const budget = 2 << 20
	store := sluice.Must(memstore.Open(memstore.Config{KeepKeys: true, MaxBytes: budget, Now: func() time.Time { return now }}))
	hour := sluice.Must(sluice.NewRule(sluice.Rule{Name: "hour", Limit: sluice.PerHour(1)}))
	second := sluice.Must(sluice.NewRule(sluice.Rule{Name: "second", Limit: sluice.PerSecond(1)}))
	take := func(rule *sluice.Rule, key string) {
		if err := store.Apply(t.Context(), []sluice.Take{{Rule: rule, Key: key, Cost: 1}}, make([]sluice.Decision, 1)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 500 {
		take(hour, fmt.Sprint("hour-", i))
	}
	for i := range 10_000 {
		take(second, fmt.Sprint("flood-", i))
		now = now.Add(2 * time.Millisecond)
		if used := store.UsedBytes(); used > budget {
			t.Fatalf("%d bytes of %d", used, budget)
		}
	}
	for i := range 50 { // whose slots no longer exist
		take(second, fmt.Sprint("flood-", i))
	}
	take(second, "the last")
	found := map[string]int{}
	for _, b := range listAll(t, store, sluice.ListOptions{}, nil) {
		found[b.Key]++
	}
	for i := range 500 {
		if found[fmt.Sprint("hour-", i)] != 1 {
			t.Fatalf("hour-%d is listed %d times", i, found[fmt.Sprint("hour-", i)])
		}
	}
	if n := len(found) - 500; n < 545 || n > 552 || found["the last"] != 1 {
		t.Errorf("of the flood %d keys are listed, and the last %d times; 551 are of the last second", n, found["the last"])
	}
}

// Keys that exist from the first page to the last are on one of the pages, whatever other keys are added or removed.
func TestListMissesNone(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	var mu sync.Mutex
	clock := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	store := sluice.Must(memstore.Open(memstore.Config{KeepKeys: true, MaxBytes: 1 << 21, Now: clock}))
	hour := sluice.Must(sluice.NewRule(sluice.Rule{Name: "hour", Limit: sluice.PerHour(1)}))
	second := sluice.Must(sluice.NewRule(sluice.Rule{Name: "second", Limit: sluice.PerSecond(1)}))
	var flood atomic.Int64
	churn := func() {
		for range 50 {
			takes := []sluice.Take{{Rule: second, Key: fmt.Sprint("flood-", flood.Add(1)), Cost: 1}}
			if err := store.Apply(context.Background(), takes, make([]sluice.Decision, 1)); err != nil {
				t.Error(err)
			}
			mu.Lock()
			now = now.Add(3 * time.Millisecond)
			mu.Unlock()
		}
	}
	for i := range 400 {
		if err := store.Apply(t.Context(), []sluice.Take{{Rule: hour, Key: fmt.Sprint(i), Cost: 1}}, make([]sluice.Decision, 1)); err != nil {
			t.Fatal(err)
		}
		if i%10 == 0 {
			churn()
		}
	}
	done := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				churn()
			}
		}
	})
	for range 2 {
		found := map[string]bool{}
		for _, b := range listAll(t, store, sluice.ListOptions{Rules: []*sluice.Rule{hour}, PageSize: 17}, churn) {
			found[b.Key] = true
		}
		if len(found) != 400 {
			t.Errorf("%d of 400 keys are listed", len(found))
		}
	}
	close(done)
	wait.Wait()
}

// The error of a store without keys says how to keep them, and an invalid token is rejected.
func TestListErrors(t *testing.T) {
	if _, err := memstore.New().List(t.Context(), sluice.ListOptions{}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("%v", err)
	}
	store := sluice.Must(memstore.Open(memstore.Config{KeepKeys: true}))
	for _, token := range []string{"x", "1", "16/0", "-1/0", "0/-2", "0/x", "0/1/2", "99999999999999999999/1"} {
		if _, err := store.List(t.Context(), sluice.ListOptions{PageToken: token}); !errors.Is(err, sluice.ErrInvalid) {
			t.Errorf("%q: %v", token, err)
		}
	}
	if page, err := store.List(t.Context(), sluice.ListOptions{PageToken: "3/999999999"}); err != nil || len(page.Buckets) > 0 {
		t.Errorf("%+v, %v", page, err)
	}
	if _, err := store.List(t.Context(), sluice.ListOptions{PageSize: 1001}); !errors.Is(err, sluice.ErrInvalid) {
		t.Errorf("%v", err)
	}
}
