package rls_test

import (
	"testing"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/edge/rls"
	"github.com/sluiceproject/sluice/cmd/internal/testenv/rlstest"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rulefile"
	"github.com/sluiceproject/sluice/rules"
)

// Any bytes of a client can be a value: no value fails the call, and no two values share a bucket. Entries that no rule reads
// have no effect.
func TestStrangeValues(t *testing.T) {
	loaded, err := rulefile.LoadFiles(rulefile.Options{}, rulefile.File{Name: "d.yaml", Data: []byte(`
domain: d
descriptors:
  - {key: a, rate_limit: {unit: year, requests_per_unit: 2}}
`)})
	if err != nil {
		t.Fatal(err)
	}
	limiter, err := sluice.NewWithRules(memstore.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, metadata := range []bool{false, true} {
		d := rls.NewDecider(limiter, func() *rules.Set { return loaded.Set }, rls.Options{Metadata: metadata})
		conn := dial(t, d, rls.Bounds{})
		ask := func(key, value, want string) {
			t.Helper()
			if got := tell(rlstest.RawAnswer(t.Context(), conn, "d", key, value)); got != want {
				t.Errorf("%.20q=%.20q: got %.200s, want %s", key, value, got, want)
			}
		}
		for _, value := range rlstest.StrangeValues {
			if metadata { // the same buckets
				ask("a", value, "OVER_LIMIT: OVER_LIMIT 2/YEAR left 0")
			} else {
				ask("a", value, "OK: OK 2/YEAR left 1")
				ask("a", value, "OK: OK 2/YEAR left 0")
			}
			ask("unread", value, "OK: OK")
			ask(value+"\xff", value, "OK: OK")
		}
		const want = "rpc error: code = InvalidArgument desc = rate limit request: the domain is not UTF-8"
		if got := rlstest.RawAnswer(t.Context(), conn, "\xff", "a", "1"); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// tell formats a response without its metadata.
func tell(answer string) string {
	for i := range answer {
		if answer[i] == '%' {
			return answer[:i-1]
		}
	}
	return answer
}
