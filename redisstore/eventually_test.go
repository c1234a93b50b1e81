package redisstore_test

import (
	"testing"
	"time"
)

// await calls try until it succeeds, for up to a minute.
func await(t testing.TB, try func() error) {
	t.Helper()
	deadline, tick := time.After(time.Minute), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("not within a minute: %v", err)
		case <-tick.C:
		}
	}
}
