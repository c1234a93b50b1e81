package table

import (
	"fmt"
	"testing"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
)

// BenchmarkApply decides one, three and eight limits at once.
func BenchmarkApply(b *testing.B) {
	for _, n := range []int{1, 3, 8} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			t := New(Config{MaxBytes: 64 << 20})
			p := step.Compile(step.Params{Kind: step.Bucket, Count: 1_000_000, Length: 1_000_000, Burst: 1_000_000})
			ops, out := make([]group.Op, n), make([]step.Answer, n)
			for i := range ops {
				ops[i] = group.Op{Rule: group.RuleID{A: uint64(i), B: 1}, Params: &p, Request: step.Request{Cost: 1}}
			}
			keys := make([]string, 1024)
			for i := range keys {
				keys[i] = fmt.Sprintf("user:%d", i)
			}
			now := int64(1_700_000_000_000_000)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				for j := range ops {
					ops[j].Key = keys[i%len(keys)]
				}
				now++
				t.Apply(now, ops, out)
			}
		})
	}
}
