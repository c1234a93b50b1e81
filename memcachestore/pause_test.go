//go:build unix

package memcachestore_test

import (
	"testing"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/testenv/memcachetest"
	"github.com/sluiceproject/sluice/memcachestore"
)

// TestPaused: a server that stops answering and goes on later. What it was asked in between it may or may not do.
func TestPaused(t *testing.T) {
	server := memcachetest.Start(t)
	hurried := openStore(t, memcachestore.Config{Addrs: []string{server.Addr}, Timeout: short})
	s := openStore(t, memcachestore.Config{Addrs: []string{server.Addr}})
	rule := newRule("r", window(10))
	take := sluice.Take{Rule: rule, Key: "k", Cost: 1}
	apply(t, s, take)
	server.Pause()
	for range 3 {
		refused(t, "paused", hurried, take)
	}
	server.Resume()
	for range 20 {
		apply(t, s, take)
	}
	if n := spent(t, s, rule, "k"); n != 10 {
		t.Errorf("%d of 10 are spent", n)
	}
}
