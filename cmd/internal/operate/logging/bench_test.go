package logging

import (
	"context"
	"io"
	"testing"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/rules"
)

// BenchmarkDenialLeftOut measures a denial that is not written, as most are under high load.
func BenchmarkDenialLeftOut(b *testing.B) {
	log, _ := New(io.Discard, Options{})
	d := NewDenialLog(log, DenialLogOptions{PerSecond: 1, Parts: func(*sluice.Rule, string) []rules.KeyPart { return nil }})
	t := sluice.Take{Rule: sluice.Must(sluice.NewRule(sluice.Rule{Name: "r", Limit: sluice.PerHour(1)})), Key: "k", Cost: 1}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			d.Denied(context.Background(), t, sluice.Decision{})
		}
	})
}
