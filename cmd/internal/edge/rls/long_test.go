package rls_test

import (
	"strings"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/edge/rls"
	"github.com/sluiceproject/sluice/cmd/internal/testenv/rlstest"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rulefile"
	"github.com/sluiceproject/sluice/rules"
)

// A value of any length is matched and limited, values that differ only at their ends have different keys, and entries that no
// rule reads have no effect.
func TestLongValues(t *testing.T) {
	loaded, err := rulefile.LoadFiles(rulefile.Options{}, rulefile.File{Name: "d.yaml", Data: []byte(`
domain: d
descriptors:
  - {key: a, rate_limit: {unit: year, requests_per_unit: 2}}
  - {key: p, value: "xx*", rate_limit: {unit: year, requests_per_unit: 1}}
`)})
	if err != nil {
		t.Fatal(err)
	}
	limiter, err := sluice.NewWithRules(memstore.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	d := rls.NewDecider(limiter, func() *rules.Set { return loaded.Set }, rls.Options{})
	client := pb.NewRateLimitServiceClient(dial(t, d, rls.Bounds{}))
	long := strings.Repeat("x", 9<<10)
	for _, step := range []rlstest.Step{
		{Ask: "a=" + long + "1", Want: "OK: OK 2/YEAR left 1"},
		{Ask: "a=" + long + "1", Want: "OK: OK 2/YEAR left 0"},
		{Ask: "a=" + long + "1", Want: "OVER_LIMIT: OVER_LIMIT 2/YEAR left 0"},
		{Ask: "a=" + long + "2", Want: "OK: OK 2/YEAR left 1"},
		{Ask: "a=1 | unread=" + long, Want: "OK: OK 2/YEAR left 1 | OK"},
		{Ask: "a=1 | " + strings.Repeat("a=1,", 500) + "a=1", Want: "OK: OK 2/YEAR left 0 | OK"},
		{Ask: "a=1 | unread=" + long, Want: "OVER_LIMIT: OVER_LIMIT 2/YEAR left 0 | OK"},
		{Ask: "p=" + long, Want: "OK: OK 1/YEAR left 0"},
		{Ask: "p=" + long, Want: "OVER_LIMIT: OVER_LIMIT 1/YEAR left 0"},
	} {
		if got := rlstest.Answer(t.Context(), client, "d", step.Ask); got != step.Want {
			t.Errorf("%.20s…: got %.200s, want %s", step.Ask, got, step.Want)
		}
	}
}

// The key of a limit in a request includes all entries, for any number of them.
func TestManyEntries(t *testing.T) {
	decode := func(last string) rules.Entry {
		r := request("d", "k", "v")
		for range 2 * rls.MaxEntries {
			r.Descriptors[0].Entries = append(r.Descriptors[0].Entries, r.Descriptors[0].Entries[0])
		}
		r.Descriptors[0].Entries = append(r.Descriptors[0].Entries, request("d", "k", last).Descriptors[0].Entries...)
		var req rls.Request
		req.FromProto(r)
		if n := len(req.Descriptors[0].Entries); n != rls.MaxEntries+1 {
			t.Fatalf("%d entries are kept", n)
		}
		return req.Descriptors[0].Entries[rls.MaxEntries]
	}
	if first, again := decode("1"), decode("1"); first != again || first == decode("2") {
		t.Error("the digest does not distinguish further entries")
	}
}
