package redisstore_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/internal/testenv/redistest"
	"github.com/sluiceproject/sluice/redisstore"
)

// TestShardServers checks the server addresses for operators, also in a Cluster, and before the first connection.
func TestShardServers(t *testing.T) {
	for name, url := range map[string]string{"connected": redistest.Shared(t).URL(), "never connected": "redis://127.0.0.1:1"} {
		s, err := redisstore.Open(redisstore.Config{URL: url})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if got, err := s.ShardServers(t.Context()); err != nil || !slices.Equal(got, []string{strings.TrimPrefix(url, "redis://")}) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	c := redistest.StartCluster(t)
	s, err := redisstore.Open(redisstore.Config{URL: c.URL()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got, err := s.ShardServers(t.Context())
	if err != nil || len(got) != s.Shards() {
		t.Fatalf("%q, %v", got, err)
	}
	for slot := range 16384 {
		if slot%1000 != 0 {
			continue
		}
		if owner := c.Owner(slot).Addr; !slices.Contains(strings.Split(got[slot*16/16384], ","), owner) {
			t.Errorf("slot %d is on %s, but its shard on %s", slot, owner, got[slot*16/16384])
		}
	}
}
