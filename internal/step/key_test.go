package step_test

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/internal/step"
)

const (
	micro  = 1
	milli  = 1000 * micro
	second = 1000 * milli
	minute = 60 * second
	hour   = 60 * minute
	day    = 24 * hour
)

// key is the stored state of a key. Its methods do what a store does.
type key struct {
	p     *step.Params
	state step.State
	words []uint64
	known *step.Known // numbers of its rule
}

func newKey(p step.Params) *key {
	compiled := step.Compile(p)
	k := &key{p: &compiled}
	k.known = k.known.With(k.p.Numbers())
	return k
}

// room grows the words to the number that the next take may need.
func (k *key) room(now int64, settles bool) {
	need := k.p.Words(k.state, k.words, now, settles)
	if need <= len(k.words) {
		return
	}
	larger := make([]uint64, need)
	if len(k.words) > 0 {
		k.p.GrowWords(k.words, larger)
	}
	k.words = larger
}

func (k *key) take(now int64, r step.Request) step.Answer {
	k.room(now, r.Settles)
	r.Known = k.known
	next, a := k.p.Take(k.state, k.words, now, r)
	k.state = next
	return a
}

func (k *key) allow(now, cost int64) bool { return k.take(now, step.Request{Cost: cost}).Allowed }

// peek returns the remaining quota.
func (k *key) peek(now int64) int64 { return k.take(now, step.Request{}).Remaining }

func (k *key) adjust(now, at, delta int64) step.Answer {
	return k.settle(now, step.Settlement{At: at, Delta: delta})
}

func (k *key) settle(now int64, x step.Settlement) step.Answer {
	k.room(now, false)
	x.Known = k.known
	next, a := k.p.Adjust(k.state, k.words, now, x)
	k.state = next
	return a
}

// under returns the same key under a changed limit.
func (k *key) under(p step.Params) *key {
	n := newKey(p)
	n.state, n.words, n.known = k.state, k.words, k.known
	n.known = n.known.With(n.p.Numbers())
	return n
}

func (k *key) clone() *key {
	return &key{p: k.p, state: k.state, words: append([]uint64(nil), k.words...), known: k.known}
}

func (k *key) String() string { return describe(k.p) }

func describe(p *step.Params) string {
	names := [...]string{"?", "bucket", "interval", "window", "counter", "slices", "log", "slots"}
	s := fmt.Sprintf("%s %d per %d µs", names[p.Kind], p.Count, p.Length)
	if p.Burst > 0 {
		s += fmt.Sprintf(" burst %d", p.Burst)
	}
	if p.HasInitial {
		s += fmt.Sprintf(" initial %d", p.Initial)
	}
	if p.SoftExcess > 0 {
		s += fmt.Sprintf(" over %d for %d", p.SoftExcess, p.SoftPeriod)
	}
	return s + fmt.Sprintf(" queue=%v nearest=%v align=%d slices=%d", p.Queue, p.Nearest, p.Align, p.Slices)
}

// kinds returns one limit of each kind and variant, small enough for a run to reach its bounds.
func kinds(count, length, burst int64) map[string]step.Params {
	length = max(length, 3)
	return map[string]step.Params{
		"bucket":          {Kind: step.Bucket, Count: count, Length: length, Burst: burst},
		"bucket/initial":  {Kind: step.Bucket, Count: count, Length: length, Burst: burst, HasInitial: true, Initial: burst / 3},
		"queue":           {Kind: step.Bucket, Queue: true, Count: count, Length: length, Burst: burst},
		"interval":        {Kind: step.Interval, Count: count, Length: length, Burst: burst},
		"interval/first":  {Kind: step.Interval, Align: step.FirstHit, Count: count, Length: length, Burst: burst},
		"window":          {Kind: step.Window, Count: count, Length: length},
		"window/first":    {Kind: step.Window, Align: step.FirstHit, Count: count, Length: length},
		"window/soft":     {Kind: step.Window, Count: count, Length: length, SoftExcess: burst, SoftPeriod: length / 3},
		"window/calendar": calendarWindow(count),
		"counter":         {Kind: step.Counter, Count: count, Length: length},
		"counter/nearest": {Kind: step.Counter, Nearest: true, Count: count, Length: length},
		"slices":          {Kind: step.Slices, Count: count, Length: length / 3 * 3, Slices: 3},
		"slices/nearest":  {Kind: step.Slices, Nearest: true, Count: count, Length: length / 3 * 3, Slices: 3},
		"log":             {Kind: step.Log, Count: min(count, step.MaxLogCount), Length: length},
		"slots":           {Kind: step.Permits, Count: min(count, step.MaxLogCount), Length: length},
	}
}

// calendarWindow returns windows of 23, 24 and 25 hours, like days when clocks change.
func calendarWindow(count int64) step.Params {
	start := func(n int64) int64 { return n*day + (n*7%3-1)*hour/2 }
	return step.Params{
		Kind: step.Window, Align: step.Calendar, Count: count, Length: 26 * hour, BoundsID: 7,
		Bounds: func(now int64) (int64, int64) {
			n := now / day
			if now < start(n) {
				n--
			} else if now >= start(n+1) {
				n++
			}
			return start(n), start(n + 1)
		},
	}
}

// TestMain includes the property tests in the long runs. Failures are printed with the seed that repeats them, so
// nothing is written to testdata.
func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("rapid.nofailfile", "true")
	if checks := flag.Lookup("rapid.checks"); checks.Value.String() == checks.DefValue {
		_ = checks.Value.Set(strconv.Itoa(soak(400)))
	}
	os.Exit(m.Run())
}

// soak multiplies the number of repetitions of random tests.
func soak(n int) int {
	if os.Getenv("SLUICE_SOAK") != "" {
		return 100 * n
	}
	if testing.Short() {
		return max(1, n/10)
	}
	return n
}

// seed returns the first seed of a random test, a new one for each run. SLUICE_SEED repeats a run.
func seed(t *testing.T) uint64 {
	s := uint64(time.Now().UnixNano())
	if v, err := strconv.ParseUint(os.Getenv("SLUICE_SEED"), 10, 64); err == nil {
		s = v
	}
	t.Logf("SLUICE_SEED=%d", s)
	return s
}
