package redistest

import (
	"errors"
	"testing"
)

// TestFailover checks that a cluster and a set of sentinels replace a killed primary.
func TestFailover(t *testing.T) {
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		c := StartCluster(t)
		if n := len(c.Primaries()); n != 3 {
			t.Fatalf("%d primaries", n)
		}
		c.Primaries()[0].Kill()
		await(t, "another primary", func() error {
			if len(c.Primaries()) != 3 {
				return errFew
			}
			return nil
		})
	})
	t.Run("sentinels", func(t *testing.T) {
		t.Parallel()
		s := StartSentinels(t)
		first := s.Primary()
		if first != s.Servers[0] {
			t.Fatal("the first server is not the primary")
		}
		first.Kill()
		await(t, "another primary", func() error {
			if s.Primary() == nil {
				return errFew
			}
			return nil
		})
	})
}

var errFew = errors.New("too few primaries")
