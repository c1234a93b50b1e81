package memstore_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/memstore"
)

var background = context.Background()

func allow(t *testing.T, l *sluice.Limiter, key string) sluice.Decision {
	t.Helper()
	d, err := l.Allow(background, key)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A decision allocates nothing, whatever the algorithm.
func TestDecisionsDoNotAllocate(t *testing.T) {
	for _, a := range []sluice.Algorithm{
		sluice.TokenBucket, sluice.LeakyBucket, sluice.FixedWindow, sluice.SlidingWindowLog, sluice.SlidingWindowCounter,
		sluice.Concurrency,
	} {
		l := sluice.Must(sluice.New(memstore.New(), "r", sluice.PerHour(300).WithAlgorithm(a)))
		allow(t, l, "a key of some length")
		if n := testing.AllocsPerRun(400, func() { _, _ = l.Allow(background, "a key of some length") }); n != 0 {
			t.Errorf("%v: Allow allocates %v times", a, n)
		}
	}
	rules := []*sluice.Rule{
		sluice.Must(sluice.NewRule(sluice.Rule{Name: "a", Limit: sluice.PerSecond(10)})),
		sluice.Must(sluice.NewRule(sluice.Rule{Name: "b", Limit: sluice.PerHour(300).WithAlgorithm(sluice.FixedWindow)})),
		sluice.Must(sluice.NewRule(sluice.Rule{Name: "c", Limit: sluice.PerDay(1000).WithAlgorithm(sluice.SlidingWindowLog)})),
	}
	store := memstore.New()
	takes, out := make([]sluice.Take, len(rules)), make([]sluice.Decision, len(rules))
	for i, r := range rules {
		takes[i] = sluice.Take{Rule: r, Key: "k", Cost: 1}
	}
	if n := testing.AllocsPerRun(400, func() { _ = store.Apply(background, takes, out) }); n != 0 {
		t.Errorf("Apply of three rules allocates %v times", n)
	}
}

// Limited keys stay limited and expire when their time is over.
func TestForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		l := sluice.Must(sluice.New(store, "r", sluice.PerMinute(2)))
		for i, want := range []bool{true, true, false} {
			if d := allow(t, l, "k"); d.Allowed != want {
				t.Errorf("request %d: %+v", i, d)
			}
		}
		if n := store.Len(); n != 1 {
			t.Errorf("%d keys are live, want 1", n)
		}
		<-time.After(time.Minute)
		if n := store.Len(); n != 0 {
			t.Errorf("%d keys are live after a minute, want 0", n)
		}
	})
}

func TestSnapshotSurvivesARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.snapshot")
	config := memstore.Config{SnapshotFile: path}
	open := func() (*memstore.Store, *sluice.Limiter) {
		t.Helper()
		store, err := memstore.Open(config)
		if err != nil {
			t.Fatal(err)
		}
		return store, sluice.Must(sluice.New(store, "weekly", sluice.PerWeek(3).WithAlgorithm(sluice.FixedWindow)))
	}
	store, l := open()
	for range 3 {
		allow(t, l, "device")
	}
	if err := store.SaveSnapshot(); err != nil {
		t.Fatal(err)
	}
	_, l = open()
	if d := allow(t, l, "device"); d.Allowed {
		t.Errorf("the restart gave a new quota: %+v", d)
	}
	if d := allow(t, l, "another"); !d.Allowed {
		t.Errorf("another device is limited: %+v", d)
	}

	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("the snapshot holds a secret but has mode %v", info.Mode())
	}
	torn := whole[:len(whole)-1]
	if err := os.WriteFile(path, torn, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := memstore.Open(config); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a torn snapshot: %v", err)
	}
	if left, _ := os.ReadFile(path); len(left) != len(torn) {
		t.Error("the torn snapshot was changed")
	}
	if files, _ := filepath.Glob(path + ".tmp-*"); len(files) > 0 {
		t.Errorf("left behind: %v", files)
	}
}

// SaveSnapshot returns an error and keeps the old snapshot if the file cannot be written.
func TestSaveFails(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "folder")
	if _, err := memstore.Open(memstore.Config{SnapshotFile: filepath.Join(dir, "snapshot")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("open with a snapshot in a missing folder: %v", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	store, err := memstore.Open(memstore.Config{SnapshotFile: filepath.Join(dir, "snapshot")})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := store.SaveSnapshot(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("save into a missing folder: %v", err)
	}
	if err := memstore.New().SaveSnapshot(); err == nil {
		t.Error("save without a file name succeeded")
	}
	if _, err := memstore.Open(memstore.Config{MaxBytes: 1000}); err == nil {
		t.Error("a memory limit of 1000 bytes was accepted")
	}
}
