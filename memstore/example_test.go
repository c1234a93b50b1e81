package memstore_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/memstore"
)

func ExampleNew() {
	store := memstore.New()
	limiter := sluice.Must(sluice.New(store, "api", sluice.PerMinute(100)))
	for _, user := range []string{"ada", "grace", "ada"} {
		_, _ = limiter.Allow(context.Background(), user)
	}
	fmt.Println(store.Len(), "keys,", store.UsedBytes() > 0)
	// Output: 2 keys, true
}

// Usage survives a restart.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "memstore")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	config := memstore.Config{MaxBytes: 64 << 20, SnapshotFile: filepath.Join(dir, "counts")}
	limit := sluice.PerDay(100)

	before := sluice.Must(memstore.Open(config))
	_, _ = sluice.Must(sluice.New(before, "api", limit)).AllowN(context.Background(), "ada", 30)
	if err := before.SaveSnapshot(); err != nil {
		panic(err)
	}

	after := sluice.Must(memstore.Open(config))
	d, _ := sluice.Must(sluice.New(after, "api", limit)).Peek(context.Background(), "ada")
	fmt.Println(d.Remaining)
	// Output: 70
}

// A test can set the clock itself. For code that waits or has timers use testing/synctest, whose clock the store
// follows, too.
func ExampleConfig_now() {
	now := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	store := sluice.Must(memstore.Open(memstore.Config{Now: func() time.Time { return now }}))
	limiter := sluice.Must(sluice.New(store, "reports", sluice.PerDay(1).WithAlgorithm(sluice.FixedWindow)))
	for range 2 {
		d, _ := limiter.Allow(context.Background(), "ada")
		fmt.Println(d.Allowed, d.RetryAfter)
	}
	now = now.Add(15 * time.Hour)
	d, _ := limiter.Allow(context.Background(), "ada")
	fmt.Println(d.Allowed)
	// Output:
	// true 0s
	// false 15h0m0s
	// true
}
