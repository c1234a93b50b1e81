package queue

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/internal/testenv/disktest"
)

// Before a disk is full, no item is accepted, and accepted ones are delivered.
func TestDiskNearlyFull(t *testing.T) {
	t.Parallel()
	disk := disktest.Small(t, 32<<20)
	if disk == "" {
		return
	}
	up, room := newUpstream(), make(chan struct{})
	q, _ := run(t, Config{Directory: filepath.Join(disk, "queue"), MinFreeDisk: 8 << 20}, func(ctx context.Context, it *Item, begin func() error) Outcome {
		<-room
		return up.deliver(ctx, it, begin)
	})
	ids := []string{put(t, q, Item{Rule: "r", Target: "/x"}), put(t, q, Item{Rule: "r", Target: "/y"})}
	disktest.Fill(t, filepath.Join(disk, "ballast"), 4<<20)
	eventually(t, "rejected", func() bool { _, err := q.Put(t.Context(), Item{}); return errors.Is(err, ErrUnavailable) })
	close(room)
	for _, id := range ids {
		eventually(t, "delivered", isState(t, q, id, Done))
	}
	if err := os.Remove(filepath.Join(disk, "ballast")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "accepted", func() bool { _, err := q.Put(t.Context(), Item{}); return err == nil })
}

// On a full or read-only disk Put fails and no item is lost. With free space the queue recovers.
func TestDisk(t *testing.T) {
	t.Parallel()
	disk := disktest.Small(t, 32<<20)
	if disk == "" {
		return
	}
	up := newUpstream()
	q, stop := run(t, Config{Directory: filepath.Join(disk, "queue"), MinFreeDisk: 1}, up.deliver)
	var mu sync.Mutex
	accepted := map[string]bool{}
	try := func() error {
		id, err := q.Put(t.Context(), Item{Rule: "r", Key: "k", Target: "/x", Body: make([]byte, 50<<10)})
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			accepted[id] = true
		} else if !errors.Is(err, ErrUnavailable) {
			t.Errorf("Put: %v", err)
		}
		return err
	}
	untilRefused := func() {
		eventually(t, "rejected", func() bool { return try() != nil })
		if err := try(); err == nil {
			t.Log("the queue has already recovered")
		}
	}
	untilAccepted := func(what string) {
		before := len(accepted)
		eventually(t, what, func() bool { return try() == nil })
		if len(accepted) == before {
			t.Errorf("%s: nothing was accepted", what)
		}
	}
	if err := try(); err != nil {
		t.Fatal(err)
	}
	ballast := filepath.Join(disk, "ballast")
	for round := range 3 {
		disktest.Fill(t, ballast, 300<<10)
		untilRefused()
		if round == 1 { // no file is open for writing while the queue is not writable
			eventually(t, "read-only", func() bool { return disktest.ReadOnly(disk) == nil })
			if err := try(); err == nil {
				t.Error("accepted on a read-only disk")
			}
			if c := q.Counts(t.Context()); c.Up {
				t.Error("Counts reports a writable queue")
			}
			disktest.Writable(t, disk)
		}
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		untilAccepted("healed")
	}
	leaves(t, q, 0)
	came := map[string]bool{}
	for _, d := range up.deliveries() {
		came[d.id] = true
		if d.key != d.id {
			t.Errorf("%s was delivered with the key %s", d.id, d.key)
		}
	}
	for id := range accepted {
		if !came[id] {
			t.Errorf("%s was accepted and lost", id)
		}
	}
	stop()
	t.Logf("%d accepted, %d delivered", len(accepted), len(up.deliveries()))
	if err := disktest.ReadOnly(disk); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err := Open(Config{Directory: filepath.Join(disk, "queue")}); !errors.Is(err, syscall.EROFS) {
		t.Errorf("opened on a read-only disk: %v after %v", err, time.Since(began))
	}
}
