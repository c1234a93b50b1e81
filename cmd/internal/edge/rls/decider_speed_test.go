package rls_test

import (
	"context"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/sluiceproject/sluice/cmd/internal/edge/rls"
	"github.com/sluiceproject/sluice/internal/testenv/allocs"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rulefile"
)

// Decoding, deciding and encoding allocate nothing.
func TestDecisionAllocatesNothing(t *testing.T) {
	d := decider(t, memstore.New(), rls.Options{}, rulefile.Options{}, rulesIn(t, `
  - {key: a, rate_limit: {unit: year, requests_per_unit: 1000000}}
  - {key: b, value: "x*", rate_limit: {unit: year, requests_per_unit: 1, name: B}}
  - {key: c, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 10, algorithm: token_bucket}}
  - {key: free, rate_limit: {unlimited: true}}
`))
	for name, ask := range map[string][]string{
		"one": {"a"}, "denied": {"b"}, "several": {"a", "c", "free", "none"},
	} {
		req := request("d", ask[0], "xyz")
		for _, k := range ask[1:] {
			req.Descriptors = append(req.Descriptors, request("d", k, "xyz").GetDescriptors()...)
		}
		b, err := proto.Marshal(req)
		if err != nil {
			t.Fatal(err)
		}
		var in rls.Request
		var out rls.Response
		buffer := make([]byte, 0, 1024)
		if n := allocs.Of(func() {
			out.Reset()
			if err := in.Decode(b, rls.Bounds{}); err != nil {
				t.Fatal(err)
			}
			if err := d.ShouldRateLimit(context.Background(), &in, &out); err != nil {
				t.Fatal(err)
			}
			if _, err := out.Append(buffer); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkDecision(b *testing.B) {
	d := decider(b, memstore.New(), rls.Options{}, rulefile.Options{}, rulesIn(b, "  - {key: a, rate_limit: {unit: second, requests_per_unit: 1000000}}\n"))
	wire, err := proto.Marshal(request("d", "a", "some-user"))
	if err != nil {
		b.Fatal(err)
	}
	var in rls.Request
	var out rls.Response
	buffer := make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		out.Reset()
		if err := in.Decode(wire, rls.Bounds{}); err != nil {
			b.Fatal(err)
		}
		if err := d.ShouldRateLimit(context.Background(), &in, &out); err != nil {
			b.Fatal(err)
		}
		if buffer, err = out.Append(buffer[:0]); err != nil {
			b.Fatal(err)
		}
	}
}
