//go:build unix

package memcachestore_test

import (
	"testing"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/testenv/memcachetest"
	"github.com/sluiceproject/sluice/memcachestore"
)

// TestPaused pauses and resumes a server. Commands sent in between may or may not be executed.
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
		t.Errorf("usage is %d of 10", n)
	}
}
