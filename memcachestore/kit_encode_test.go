package memcachestore

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/private"
	"github.com/sluiceproject/sluice/internal/step"
)

// kinds returns a limit of every kind.
func kinds() (all []*step.Params) {
	for _, l := range []sluice.Limit{
		sluice.PerHour(10), sluice.PerHour(10).WithInitial(4), sluice.PerHour(7).WithAlgorithm(sluice.LeakyQueue), sluice.PerHour(10).WithAlgorithm(sluice.FixedWindow),
		sluice.PerHour(10).WithAlgorithm(sluice.SlidingWindowCounter), sluice.PerHour(10).WithAlgorithm(sluice.SlidingWindowLog),
		{Count: 10, Window: time.Hour, Refill: sluice.RefillInterval},
		{Count: 10, Window: time.Hour, Algorithm: sluice.SlidingWindowCounter, SubWindows: 4},
		sluice.PerHour(10).WithAlgorithm(sluice.FixedWindow).WithSoftExcess(2, time.Minute),
	} {
		all = append(all, private.ParamsOf(sluice.Must(l.Build())))
	}
	return all
}

const someTime = 1_790_000_000_000_000

// FuzzItem checks that decoding any value fails or returns an item that can be applied and encoded again, and that
// decoding reverses encoding.
func FuzzItem(f *testing.F) {
	for _, p := range kinds() {
		it := item{}
		for i := range int64(6) {
			a := it.take(p, someTime+i*1000, step.Request{Cost: 1 + i%2, Settles: i%2 == 0})
			it.remember(uint64(i), &a, someTime)
		}
		f.Add(it.encode("k")[headerSize:], int64(someTime), int64(3))
		it.blocked = someTime + 5
		f.Add(it.encode("k")[headerSize:], int64(someTime+1_000_000), int64(1))
	}
	f.Fuzz(func(t *testing.T, body []byte, now, cost int64) {
		var it, again item
		if len(body) > maxValue || it.decode("k", seal("k", append(make([]byte, headerSize), body...))) != nil {
			return
		}
		now = min(max(now, 1), step.MaxTime-3*step.Horizon/2)
		cost = min(max(cost, 1), 1<<50)
		for _, p := range kinds() {
			for _, r := range []step.Request{
				{}, {Cost: cost, DryRun: true}, {Cost: cost}, {Cost: cost, Charge: true}, {Cost: cost, Min: 1}, {Cost: cost, Settles: true},
			} {
				it.take(p, now, r)
			}
			it.adjust(p, now, step.Settlement{At: now - 5, Delta: cost})
			it.adjust(p, now, step.Settlement{At: now, Delta: -cost})
			it.adjust(p, now, step.Settlement{At: now, Delta: -cost, Charged: cost, Settles: true})
			it.adopt(p, now, nil, cost%2 == 0)
		}
		it.tidy(now)
		written := it.encode("k")
		if written == nil {
			return
		}
		if err := again.decode("k", written); err != nil {
			t.Fatalf("encoded item cannot be decoded: %v\n%+v", err, it)
		}
		if !bytes.Equal(again.encode("k"), written) {
			t.Fatalf("item differs after encoding and decoding:\n%+v\n%+v", it, again)
		}
	})
}

// TestDecodeBounds checks that a value that is truncated or changed anywhere is rejected.
func TestDecodeBounds(t *testing.T) {
	for _, p := range kinds() {
		it := item{blocked: someTime}
		for i := range int64(5) {
			a := it.take(p, someTime+i, step.Request{Cost: 1, Settles: true})
			it.remember(uint64(i), &a, someTime)
		}
		b := it.encode("k")
		for i := range b {
			changed := slices.Clone(b)
			changed[i] ^= 1
			for what, v := range map[string][]byte{"cut at": b[:i], "changed at": changed} {
				if new(item).decode("k", v) == nil {
					t.Errorf("%s byte %d: decoded", what, i)
				}
			}
			if i >= headerSize && new(item).decode("k", seal("k", slices.Clone(b[:i]))) == nil {
				t.Errorf("cut at byte %d, with the right checksum: decoded", i)
			}
		}
		if new(item).decode("other", b) == nil {
			t.Error("decoded under another name")
		}
	}
}

// TestLargestValue checks that no value that can be stored exceeds maxValue.
func TestLargestValue(t *testing.T) {
	limit := sluice.PerDay(step.MaxLogCount).WithAlgorithm(sluice.SlidingWindowLog)
	log := private.ParamsOf(sluice.Must(limit.Build()))
	var it item
	for i := range int64(step.MaxLogCount + 10) {
		it.take(log, someTime+i, step.Request{Cost: 1})
	}
	for n := 2; n <= step.MaxSlices; n++ {
		l := sluice.Per(math.MaxUint32, time.Duration(n)*time.Hour).WithAlgorithm(sluice.SlidingWindowCounter)
		l.SubWindows = n
		it.take(private.ParamsOf(sluice.Must(l.Build())), someTime, step.Request{Cost: math.MaxUint32})
	}
	for _, p := range kinds() {
		for i := range int64(2 * step.MaxMarks) {
			it.take(p, someTime+i, step.Request{Cost: 1, Settles: true})
		}
	}
	for id := range uint64(maxCharges) {
		it.remember(math.MaxUint64-id, &step.Answer{At: someTime, Granted: 1 << 50}, someTime)
	}
	n := len(it.encode("k"))
	t.Logf("%d bytes, %[3]d of them for a log of %[2]d requests", n, step.MaxLogCount, 8*step.MaxLogCount)
	if n > maxValue/2 {
		t.Errorf("%d bytes: maxValue is too small", n)
	}
	if err := new(item).decode("k", it.encode("k")); err != nil {
		t.Error(err)
	}
}

// FuzzName checks that different keys have different names, and that all names are printable and short.
func FuzzName(f *testing.F) {
	f.Add("a", "b", uint64(1), uint64(2))
	f.Add("a b", "a\r\nb", uint64(0), uint64(0))
	f.Add("", "\x00", uint64(1), uint64(1<<63))
	f.Add(strings.Repeat("x", 300), strings.Repeat("x", 301), uint64(1), uint64(1))
	const prefix = 200
	s := &kit{kitConfig: kitConfig{keyPrefix: strings.Repeat("p", prefix)}}
	f.Fuzz(func(t *testing.T, a, b string, x, y uint64) {
		rule := group.RuleID{A: x, B: y}
		names := map[string]bool{
			s.name(itemDigest(rule, a)): true, s.name(itemDigest(rule, b)): true,
			s.name(chargeDigest(rule, a, x)): true, s.name(chargeDigest(rule, b, x)): true,
			s.name(chargeDigest(rule, a, y)): true, s.name(chargeDigest(rule, b, y)): true,
		}
		want := 6
		if a == b {
			want /= 2
		}
		if x == y {
			want -= want / 3
		}
		if len(names) != want {
			t.Fatalf("%d names, want %d: %q %q %d %d", len(names), want, a, b, x, y)
		}
		for name := range names {
			odd := strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' })
			if odd || len(name) != prefix+nameLength {
				t.Fatalf("%q is not a valid name", name)
			}
		}
	})
}
