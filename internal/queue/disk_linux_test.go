package queue

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// smallDisk mounts a file system of so many bytes. Who may not mount is tested in a name space of its own, where everybody
// may: then it returns "".
func smallDisk(t *testing.T, bytes int) string {
	t.Helper()
	directory := t.TempDir()
	err := syscall.Mount("tmpfs", directory, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", bytes))
	const inside = "SLUICE_QUEUE_IN_NAMESPACE"
	if errors.Is(err, syscall.EPERM) && os.Getenv(inside) == "" {
		c := exec.Command("unshare", "-rm", os.Args[0], "-test.v", "-test.run=^"+t.Name()+"$")
		c.Env = append(os.Environ(), inside+"=1")
		out, err := c.CombinedOutput()
		if err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(directory, syscall.MNT_DETACH) })
	return directory
}

// fill takes what room there is but for a little.
func fill(t *testing.T, path string, leave int64) {
	t.Helper()
	var fs syscall.Statfs_t
	if err := syscall.Statfs(filepath.Dir(path), &fs); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, int64(fs.Bavail)*fs.Bsize-leave)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Before a disk is full, nothing is accepted any more, and what was is delivered.
func TestDiskNearlyFull(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, 32<<20)
	if disk == "" {
		return
	}
	up, room := newUpstream(), make(chan struct{})
	q, _ := run(t, Config{Directory: filepath.Join(disk, "queue"), Reserve: 8 << 20, Deliver: func(ctx context.Context, it *Item, begin func() error) Outcome {
		<-room
		return up.deliver(ctx, it, begin)
	}})
	ids := []string{put(t, q, Item{Rule: "r", Target: "/x"}), put(t, q, Item{Rule: "r", Target: "/y"})}
	fill(t, filepath.Join(disk, "ballast"), 4<<20)
	eventually(t, "refused", func() bool { _, err := q.Put(t.Context(), Item{}); return errors.Is(err, ErrUnavailable) })
	close(room)
	for _, id := range ids {
		eventually(t, "delivered", isState(t, q, id, Done))
	}
	if err := os.Remove(filepath.Join(disk, "ballast")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "accepted", func() bool { _, err := q.Put(t.Context(), Item{}); return err == nil })
}

// A full disk, and one that becomes read-only, have Put fail and nothing lost; with room again all is well by itself.
func TestDisk(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, 32<<20)
	if disk == "" {
		return
	}
	up := newUpstream()
	q, stop := run(t, Config{Directory: filepath.Join(disk, "queue"), Deliver: up.deliver, Reserve: 1})
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
		eventually(t, "refused", func() bool { return try() != nil })
		if err := try(); err == nil {
			t.Log("it healed meanwhile")
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
		fill(t, ballast, 300<<10)
		untilRefused()
		if round == 1 { // nothing is open for writing while it cannot be written
			eventually(t, "read-only", func() bool {
				return syscall.Mount("", disk, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, "") == nil
			})
			if err := try(); err == nil {
				t.Error("accepted on a disk that is read-only")
			}
			if c := q.Counts(t.Context()); c.Up {
				t.Error("it says that it can be written")
			}
			if err := syscall.Mount("", disk, "", syscall.MS_REMOUNT, ""); err != nil {
				t.Fatal(err)
			}
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
			t.Errorf("%s came with the key %s", d.id, d.key)
		}
	}
	for id := range accepted {
		if !came[id] {
			t.Errorf("%s was accepted and is lost", id)
		}
	}
	stop()
	t.Logf("%d accepted, %d came", len(accepted), len(up.deliveries()))
	if err := syscall.Mount("", disk, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err := Open(Config{Directory: filepath.Join(disk, "queue")}); !errors.Is(err, syscall.EROFS) {
		t.Errorf("opened on a disk that is read-only: %v after %v", err, time.Since(began))
	}
}
