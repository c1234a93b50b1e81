package queue

import (
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Valid records are read from a file with any damage; damaged records are ignored.
func FuzzLedger(f *testing.F) {
	ids := [4]itemID{{1}, {2}, {3}, {4}}
	f.Add([]byte{0, 1, 128, 2, 3, 129}, 40, byte(0))
	f.Add([]byte{0, 1, 2, 3}, 127, byte(1))
	f.Add([]byte{}, 0, byte(0))
	f.Fuzz(func(t *testing.T, steps []byte, at int, flip byte) {
		var b []byte
		damaged := -1
		if n := len(steps) * ledgerRecord; flip != 0 && n > 0 {
			at = int(uint(at) % uint(n))
			damaged = at / ledgerRecord
		}
		want := map[itemID]time.Time{}
		for i, step := range steps {
			id, accepted := ids[step&3], time.UnixMilli(int64(i)+1).UTC()
			if step&128 != 0 {
				accepted = time.Time{}
			}
			b = appendRecord(b, id, accepted)
			switch {
			case i == damaged:
			case accepted.IsZero():
				delete(want, id)
			default:
				want[id] = accepted
			}
		}
		if damaged >= 0 {
			b[at] ^= flip
		}
		live, bad := readLedger(b)
		if !maps.Equal(live, want) || (bad > 0) != (damaged >= 0) {
			t.Fatalf("%v, %d invalid records, want %v", live, bad, want)
		}
		live, bad = readLedger(append(b, steps...)) // a partial record, or any data
		_, _ = live, bad
	})
}

// The file does not grow with ended items, is read back as written, and is written again after a failure.
func TestLedger(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	var log strings.Builder
	open := func() *ledger {
		t.Helper()
		l, err := openLedger(directory, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := open()
	if !l.reconcile(nil, nil) {
		t.Error("a new directory has a ledger")
	}
	now := time.Now().UTC().Truncate(time.Millisecond)
	want := map[itemID]time.Time{}
	for n := range 3 * ledgerSlack {
		id := newID()
		l.add(id, now)
		if n%100 == 0 {
			parsed, _ := parseID(id)
			want[parsed] = now
		} else {
			l.end(id)
		}
		l.keep()
	}
	if info, err := os.Stat(l.path()); err != nil || info.Size() > int64((2*len(want)+ledgerSlack+2)*ledgerRecord) {
		t.Error(info.Size(), err)
	}
	l.close()
	l = open()
	if !maps.Equal(l.all(), want) {
		t.Errorf("%d items, want %d", len(l.all()), len(want))
	}
	if l.reconcile(nil, nil) {
		t.Error("the ledger was not found")
	}
	_ = l.file.Close() // writes fail from now on
	l.add(newID(), now)
	if _, err := os.Stat(l.path()); !os.IsNotExist(err) {
		t.Errorf("the outdated file was not removed: %v", err)
	}
	// A moved directory keeps its ledger.
	moved := filepath.Join(t.TempDir(), "moved")
	if err := os.Rename(directory, moved); err != nil {
		t.Fatal(err)
	}
	directory = moved
	l.keep()
	all := l.all()
	l.close()
	if l = open(); len(all) != len(want)+1 || !maps.Equal(l.all(), all) {
		t.Errorf("%d items, want %d", len(l.all()), len(all))
	}
	l.close()
	if n := strings.Count(log.String(), "level=ERROR"); n != 1 {
		t.Errorf("%d errors in\n%s", n, &log)
	}
}

// Files that a power failure has truncated or extended by garbage are opened, and all preceding items are read.
func TestTornFiles(t *testing.T) {
	t.Parallel()
	for name, tear := range map[string]func(path string, size int64) error{
		"rubbish at the end": func(path string, _ int64) error {
			f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			junk := make([]byte, 100)
			for i := range junk {
				junk[i] = byte(rand.Uint32())
			}
			_, err = f.Write(junk)
			return err
		},
		"cut off": func(path string, size int64) error { return os.Truncate(path, size-20) },
	} {
		t.Run(name, func(t *testing.T) {
			directory, up := quick(t), newUpstream()
			q := open(t, Config{Directory: directory})
			var ids []string
			for n := range 5 {
				ids = append(ids, put(t, q, Item{Rule: "r", Target: fmt.Sprint("/", n)}))
			}
			if err := q.Close(); err != nil {
				t.Fatal(err)
			}
			blocks, _ := filepath.Glob(filepath.Join(directory, ownName, "jetstream", "*", "streams", "sluice-items", "msgs", "*.blk"))
			if len(blocks) != 1 {
				t.Fatalf("there are %d blocks", len(blocks))
			}
			info, err := os.Stat(blocks[0])
			if err != nil {
				t.Fatal(err)
			}
			if err := tear(blocks[0], info.Size()); err != nil {
				t.Fatal(err)
			}
			if name == "cut off" {
				ids = ids[:4] // the last one was never complete
			}
			q, _ = run(t, Config{Directory: directory}, up.deliver)
			for _, id := range ids {
				eventually(t, "delivered", isState(t, q, id, Done))
			}
			put(t, q, Item{Rule: "r"})
		})
	}
}
