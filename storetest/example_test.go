package storetest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/storetest"
)

// openMemory is the function that a store's test passes to the suite.
func openMemory(_ testing.TB, clock *storetest.Clock) sluice.Store {
	return sluice.Must(memstore.Open(memstore.Config{Now: clock.Now}))
}

// The complete test of a store.
func ExampleRun() {
	testConformance := func(t *testing.T) {
		storetest.Run(t, storetest.Harness{Open: openMemory})
	}
	_ = testConformance
}

// Stores with the same guarantees make the same decisions.
func ExampleCompare() {
	testSame := func(t *testing.T) {
		reference := func(_ testing.TB, clock *storetest.Clock) sluice.Store { return storetest.NewReference(clock) }
		storetest.Compare(t, storetest.Harness{Open: openMemory}, storetest.Harness{Open: reference})
	}
	_ = testSame
}

// A store whose state is on servers is opened twice, as by two processes.
func ExampleTwoAtOnce() {
	testTwoProcesses := func(t *testing.T) {
		shared := memstore.New()
		storetest.TwoAtOnce(t, [2]sluice.Store{shared, shared})
	}
	_ = testTwoProcesses
}

// Tests of programs move the clock explicitly.
func ExampleClock() {
	clock := storetest.NewClock()
	clock.Set(storetest.ClockStart.Add(time.Hour))
	clock.Advance(time.Minute)
	fmt.Println(clock.Now().Sub(storetest.ClockStart))
	// Output: 1h1m0s
}

// The reference is a store written for clarity, not for speed.
func ExampleNewReference() {
	clock := storetest.NewClock()
	store := storetest.NewReference(clock)
	limiter := sluice.Must(sluice.New(store, "api", sluice.PerMinute(1)))
	for range 3 {
		d, _ := limiter.Allow(context.Background(), "ada")
		fmt.Println(d.Allowed, store.Len())
		clock.Advance(30 * time.Second)
	}
	// Output:
	// true 1
	// false 1
	// true 1
}

// Histories with the same seed are the same, so that an error can be reproduced.
func ExampleRandomHistory() {
	fmt.Println(storetest.RandomHistory(1, 100).Len())
	// Output: 100
}
