package memstore_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/memstore"
)

// The race detector would distort these tests, which make many decisions or measure memory. TestHeavy builds this
// package's tests without it and runs them.

const heavy = "SLUICE_HEAVY"

func TestHeavy(t *testing.T) {
	if os.Getenv(heavy) != "" {
		return // in the process that TestHeavy started
	}
	binary := filepath.Join(t.TempDir(), "memstore.test")
	build := exec.Command("go", "test", "-c", "-o", binary, ".")
	// Without the race detector. The other flags are kept: the linters have built the standard library with them.
	build.Env = append(os.Environ(), "GOFLAGS="+strings.ReplaceAll(os.Getenv("GOFLAGS"), "-race", ""))
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building without the race detector: %v\n%s", err, out)
	}
	for _, name := range []string{"TestFlood", "TestFloodOfLogs", "TestOddClocksAndCrowds"} {
		cmd := exec.Command(binary, "-test.v", "-test.run", "^"+name+"$")
		cmd.Env = append(os.Environ(), heavy+"=1")
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: "+name) {
			t.Errorf("%s: %v\n%s", name, err, out)
		} else {
			t.Logf("%s", out)
		}
	}
}

// resident returns the process' resident memory in bytes.
func resident(t *testing.T) int64 {
	t.Helper()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(b))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// A flood of more keys than there is room for neither exhausts memory nor resets the limit of any key.
func TestFlood(t *testing.T) {
	if os.Getenv(heavy) == "" {
		return // TestHeavy runs it
	}
	if runtime.GOOS != "linux" {
		t.Log("resident memory is read from /proc, on Linux only")
		return
	}
	const budget, protected = 64 << 20, 400
	keys := protected * 10_000
	if os.Getenv("SLUICE_SOAK") != "" {
		keys = 10_000_000 // as in docs/stores.md
	}
	store, err := memstore.Open(memstore.Config{MaxBytes: budget})
	if err != nil {
		t.Fatal(err)
	}
	l := sluice.Must(sluice.New(store, "r", sluice.PerHour(5)))
	for i := range protected {
		for allow(t, l, fmt.Sprint("protected", i)).Allowed {
		}
	}
	key := make([]byte, 0, 32)
	runtime.GC()
	before, most := resident(t), int64(0)
	began := time.Now()
	extra, allowed, denied, full := 0, 0, 0, 0
	for i := range keys {
		key = strconv.AppendInt(append(key[:0], "flood"...), int64(i), 10)
		d, err := l.Allow(background, string(key))
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case d.Allowed:
			allowed++
		case denied == 0:
			full = i
			fallthrough
		default:
			denied++
		}
		if i%10_000 == 0 {
			most = max(most, resident(t)-before)
			if allow(t, l, fmt.Sprint("protected", i/10_000%protected)).Allowed {
				extra++
			}
		}
	}
	took := time.Since(began)
	for i := range protected {
		if allow(t, l, fmt.Sprint("protected", i)).Allowed {
			extra++
		}
	}
	due := int(took / (12 * time.Minute)) // a limit of 5 per hour is replenished once in 12 minutes
	if extra > due*protected {
		t.Errorf("%d extra admissions on protected keys", extra)
	}
	if most > budget+budget/10 {
		t.Errorf("resident memory grew by %d MiB with a limit of %d MiB", most>>20, budget>>20)
	}
	if live := store.Len(); allowed < live || live < budget/32 {
		t.Errorf("%d of the flood's first requests were allowed, %d keys are live: want at least %d", allowed, live, budget/32)
	}
	t.Logf("%d keys: resident memory grew by %.1f MiB with a limit of %d MiB; store says %.1f MiB, %d keys live; %d extra admissions on %d protected keys",
		keys, float64(most)/(1<<20), budget>>20, float64(store.UsedBytes())/(1<<20), store.Len(), extra, protected)
	t.Logf("the first %d newcomers are allowed, of the others %.1f %% are denied", full, 100*float64(denied)/float64(keys-full))
}

// A flood of keys with wide states stays within the memory limit, too, in a process that produces garbage, for which
// the collector would let the heap grow if the states were on it.
func TestFloodOfLogs(t *testing.T) {
	if os.Getenv(heavy) == "" {
		return // TestHeavy runs it
	}
	if runtime.GOOS != "linux" {
		t.Log("resident memory is read from /proc, on Linux only")
		return
	}
	const budget, decisions = 64 << 20, 2_500_000
	store, err := memstore.Open(memstore.Config{MaxBytes: budget})
	if err != nil {
		t.Fatal(err)
	}
	l := sluice.Must(sluice.New(store, "r", sluice.PerHour(100).WithAlgorithm(sluice.SlidingWindowLog)))
	runtime.GC()
	before, most := resident(t), int64(0)
	allowed := 0
	for i := range decisions {
		// Some keys are frequent, so that logs of all sizes are allocated and outgrown, and there are always new ones.
		n := i
		if i%4 > 0 {
			n = i % (i/32 + 1)
		}
		key := "a key as long as those of sessions and devices often are, " + strconv.Itoa(n)
		d, err := l.Allow(background, key)
		if err != nil {
			t.Fatal(err)
		}
		if d.Allowed {
			allowed++
		}
		if i%10_000 == 0 {
			most = max(most, resident(t)-before)
		}
	}
	t.Logf("%d decisions on logs, %d allowed: resident memory grew by %.1f MiB with a limit of %d MiB; store says %.1f MiB, %d keys live",
		decisions, allowed, float64(most)/(1<<20), budget>>20, float64(store.UsedBytes())/(1<<20), store.Len())
	if most > budget+budget/10 {
		t.Errorf("resident memory grew by %d MiB with a limit of %d MiB", most>>20, budget>>20)
	}
	if store.UsedBytes() < budget*9/10 {
		t.Errorf("only %d MiB of %d were used: too little for the test", store.UsedBytes()>>20, budget>>20)
	}
}

// oddClock is stale by up to a second at every other read, and sometimes jumps an hour in either direction.
type oddClock struct {
	now  atomic.Int64 // microseconds
	look atomic.Uint64
}

func (c *oddClock) Now() time.Time {
	n := c.look.Add(1)
	now := c.now.Add(3)
	const hour = int64(time.Hour / time.Microsecond)
	switch {
	case n%200_003 == 0:
		now = c.now.Add(hour)
	case n%300_017 == 0:
		now = c.now.Add(-hour)
	case n%2 == 0:
		now -= int64(n * 0x9E3779B97F4A7C15 >> 44) // up to 1.05 s
	}
	return time.UnixMicro(now)
}

// Stale clocks, clocks that jump an hour in either direction, and 64 goroutines on one key never admit more than the
// algorithm's invariant allows.
func TestOddClocksAndCrowds(t *testing.T) {
	if os.Getenv(heavy) == "" {
		return // TestHeavy runs it
	}
	decisions := 4_000_000
	if os.Getenv("SLUICE_SOAK") != "" {
		decisions *= 25
	}
	const limit, window = 1000, 100 * time.Millisecond
	for _, a := range []sluice.Algorithm{sluice.TokenBucket, sluice.FixedWindow, sluice.SlidingWindowLog, sluice.SlidingWindowCounter} {
		t.Run(a.String(), func(t *testing.T) {
			c := &oddClock{}
			c.now.Store(time.Date(2026, 3, 2, 1, 0, 0, 0, time.UTC).UnixMicro())
			store, err := memstore.Open(memstore.Config{Now: c.Now})
			if err != nil {
				t.Fatal(err)
			}
			l := sluice.Must(sluice.New(store, "r", sluice.Per(limit, window).WithAlgorithm(a)))
			admitted := crowd(t, l, a, decisions/4)
			switch a {
			case sluice.TokenBucket:
				checkBucket(t, admitted, limit, window.Microseconds())
			case sluice.SlidingWindowLog:
				checkLog(t, admitted, limit, window.Microseconds())
			default:
				for end, n := range admitted {
					if n > limit {
						t.Fatalf("the window that ends at %d admitted %d of %d", end, n, limit)
					}
				}
			}
			t.Logf("%v: %d decisions, %d different moments or windows with admissions", a, decisions/4, len(admitted))
		})
	}
}

// crowd makes decisions from 64 goroutines and counts the allowed ones by the time from which they count: the instant,
// or for windows the end of the window.
func crowd(t *testing.T, l *sluice.Limiter, a sluice.Algorithm, decisions int) map[int64]int64 {
	const goroutines = 64
	var mu sync.Mutex
	admitted := map[int64]int64{}
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			own := map[int64]int64{}
			rng := rand.New(rand.NewPCG(uint64(g), 1))
			for range decisions / goroutines {
				cost := int64(1)
				if rng.IntN(8) == 0 {
					cost = 1 + rng.Int64N(20)
				}
				d, err := l.AllowN(background, "k", cost)
				if err != nil {
					t.Error(err)
					return
				}
				if !d.Allowed {
					continue
				}
				switch a {
				case sluice.FixedWindow:
					own[d.Receipt+d.ResetAfter.Microseconds()] += cost
				case sluice.SlidingWindowCounter: // fully reset at the end of the next window
					own[d.Receipt+d.ResetAfter.Microseconds()-100_000] += cost
				default:
					own[d.Receipt] += cost
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for at, n := range own {
				admitted[at] += n
			}
		})
	}
	wg.Wait()
	return admitted
}
