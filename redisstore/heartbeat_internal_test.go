package redisstore

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/internal/testenv/redistest"
)

// TestHeartbeat checks that instances count each other, notice instances that leave or crash, and keep the last number
// while the server is unavailable.
func TestHeartbeat(t *testing.T) {
	server := redistest.Start(t)
	var (
		all   []*Store
		stops []context.CancelFunc
		work  sync.WaitGroup
	)
	for range 3 {
		s, err := Open(Config{URL: server.URL()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		s.every = 100 * time.Millisecond
		if s.Instances() != 0 {
			t.Errorf("%d instances before the first heartbeat, want 0", s.Instances())
		}
		ctx, stop := context.WithCancel(t.Context())
		all, stops = append(all, s), append(stops, stop)
		work.Go(func() {
			if err := s.Heartbeat(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() {
		for _, stop := range stops {
			stop()
		}
		work.Wait()
	})
	await := func(stores []*Store, want int) {
		t.Helper()
		deadline, tick := time.After(time.Minute), time.NewTicker(5*time.Millisecond)
		defer tick.Stop()
		for i := 0; i < len(stores); {
			if stores[i].Instances() == want {
				i++
				continue
			}
			select {
			case <-tick.C:
			case <-deadline:
				t.Fatalf("%d instances, want %d", stores[i].Instances(), want)
			}
		}
	}
	await(all, 3)
	stops[2]()
	await(all[:2], 2)
	// A crashed instance does not remove itself.
	now, err := all[0].micros(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := server.Do("ZADD", all[0].nodesKey(), strconv.FormatInt(now/1000, 10), "dead"); err != nil {
		t.Fatal(err)
	}
	await(all[:2], 3)
	await(all[:2], 2)
	if ttl, err := server.Do("PTTL", all[0].nodesKey()); err != nil || ttl == "-1" {
		t.Errorf("the key has no TTL: %s %v", ttl, err)
	}
	server.Kill()
	last := all[0].Instances()
	if err := all[0].beat(t.Context()); err == nil || all[0].Instances() != last {
		t.Errorf("%d instances while the server is unavailable, %d before", all[0].Instances(), last)
	}
}

// TestJoining checks that an instance has a number once the others have counted it, and keeps it when the server loses
// its data.
func TestJoining(t *testing.T) {
	server := redistest.Start(t)
	join := func() *Store {
		s, err := Open(Config{URL: server.URL()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return s
	}
	beat := func(s *Store, want int) {
		t.Helper()
		tick := time.Tick(2 * time.Millisecond) // the server's clock has milliseconds
		<-tick
		for s.beat(t.Context()) != nil { // the connection may have been closed
			<-tick
		}
		if s.Instances() != want {
			t.Errorf("%d instances, want %d", s.Instances(), want)
		}
	}
	flush := func() {
		t.Helper()
		if _, err := server.Do("FLUSHALL"); err != nil {
			t.Fatal(err)
		}
	}
	a, b, c := join(), join(), join()
	beat(a, 1) // the only instance
	beat(b, 0) // a does not count it yet
	beat(b, 0)
	beat(a, 2)
	beat(b, 2)
	beat(c, 0)
	beat(a, 3)
	beat(c, 0) // b does not count it yet
	beat(b, 3)
	beat(c, 3)
	again := func() {
		t.Helper()
		for range missedBeats {
			beat(b, 3)
			beat(a, 3)
			beat(c, 3)
		}
	}
	for range 2 {
		flush()
		again()
	}
	server.Kill()
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	again()
	// An instance that was absent for so long that the others may have dropped it must be counted again.
	c.leave(t.Context())
	c.members.beaten = time.Now().Add(-time.Minute)
	for range missedBeats {
		beat(a, 3)
		beat(b, 3)
	}
	beat(a, 2)
	beat(b, 2)
	beat(c, 0)
	beat(a, 3)
	beat(c, 0)
	beat(b, 3)
	beat(c, 3)
}
