package authn

import (
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/internal/bounds"
)

// Exceeding a bound is counted once; reaching it exactly is not counted.
func TestCounts(t *testing.T) {
	claims := map[string]any{}
	for i := range 256 {
		claims[fmt.Sprint("c", i)] = "x"
	}
	var m digestCache
	login := func(i int) { m.add(sha256.Sum256(fmt.Append(nil, i)), time.Now()) }
	for name, c := range map[string]struct {
		bound      *bounds.Bound
		at, beyond func()
	}{
		"claims": {bounds.Claims, func() { flatten(claims) }, func() {
			claims["one"], claims["two"] = "more", "more"
			flatten(claims)
		}},
		"logins": {bounds.RememberedLogins, func() {
			for i := range maxCachedDigests {
				login(i)
			}
			login(0) // again
		}, func() { login(maxCachedDigests) }},
	} {
		was := c.bound.Count()
		if c.at(); c.bound.Count() != was {
			t.Errorf("%s: reached %d times at the border", name, c.bound.Count()-was)
		}
		if c.beyond(); c.bound.Count() != was+1 {
			t.Errorf("%s: reached %d times beyond it", name, c.bound.Count()-was)
		}
	}
}
