package resp_test

import (
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/edge/resp"
	"github.com/sluiceproject/sluice/cmd/internal/testenv/rlstest"
	"github.com/sluiceproject/sluice/memstore"
)

// Keys are bytes: none fails the command, and no two share a bucket.
func TestStrangeKeys(t *testing.T) {
	_, address := start(t, memstore.New(), resp.Config{})
	a := newAsker(t, address)
	for _, key := range rlstest.StrangeValues {
		if key == "" || len(key) > 1<<10 { // rejected: see TestCommands
			continue
		}
		if got := a.throttle(key, 0, 1, 3600); got[0] != 0 {
			t.Errorf("%q: %v", key, got)
		}
		if got := a.throttle(key, 0, 1, 3600); got[0] != 1 {
			t.Errorf("%q again: %v", key, got)
		}
	}
}
