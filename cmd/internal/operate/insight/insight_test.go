package insight_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/operate/insight"
	"github.com/sluiceproject/sluice/rules"
)

// decide reports a decision to the recorder as a limiter does.
func (w *world) decide(key string, d sluice.Decision) {
	w.recorder.Events().OnDecision(context.Background(), sluice.Take{Rule: w.rule, Key: key, Cost: 1}, d)
}

func keysOf(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("2:ip11:198.18.%03d.%03d", i/256, i%256)
	}
	return all
}

var (
	allowed = sluice.Decision{Allowed: true, Granted: 1, Limit: 10, Remaining: 5, ResetAfter: time.Second}
	denied  = sluice.Decision{Limit: 10, RetryAfter: time.Second, ResetAfter: time.Second}
)

// A decision allocates nothing: allowed or denied, of followed and other keys, while denied keys come and go.
func TestAllocations(t *testing.T) {
	for _, limit := range []string{"10/s", "{rate: 10/s, algorithm: fixed_window}", "{rate: 10/s, algorithm: sliding_window_log}"} {
		w := newWorld(t, 1, rule(limit))
		keys, i := keysOf(5000), 0
		r := insight.New(insight.Config{Rules: func() *rules.Set { return w.set }, Now: func() time.Time { return w.now }})
		on := r.Events().OnDecision
		once := func() {
			w.now = w.now.Add(time.Millisecond)
			d := allowed
			if i%3 == 0 {
				d = denied
			}
			d.Remaining = int64(i % 7)
			on(context.Background(), sluice.Take{Rule: w.rule, Key: keys[i*i%len(keys)], Cost: 1}, d)
			i++
		}
		for range 10_000 {
			once()
		}
		if n := testing.AllocsPerRun(10_000, once); n != 0 {
			t.Errorf("%s: %v allocations per decision", limit, n)
		}
	}
}

// The memory of a rule is bounded, whatever its keys, and that of a rule without decisions is small.
func TestMemory(t *testing.T) {
	if n := insight.BytesPerRule(false); n > insight.MaxBytes {
		t.Errorf("a rule takes up to %d bytes, want at most %d", n, insight.MaxBytes)
	}
	if n := insight.BytesPerRule(true); n > insight.MaxBriefBytes {
		t.Errorf("each further rule takes up to %d bytes, want at most %d", n, insight.MaxBriefBytes)
	}
	w := newWorld(t, 1, rule("10/s"))
	for _, key := range keysOf(30_000) {
		w.decide(key, denied)
	}
	if n := w.recorder.Bytes("r"); n == 0 || n > insight.MaxBytes {
		t.Errorf("after 30,000 denied keys a rule takes %d bytes, want 1 to %d", n, insight.MaxBytes)
	}
	if n := unsafe.Sizeof(*new(insight.Untouched)); n > 300 {
		t.Errorf("a rule without decisions takes %d bytes", n)
	}
}

// Many goroutines report decisions while others ask for verdicts.
func TestConcurrent(t *testing.T) {
	w := newWorld(t, 1, rule("{rate: 10/s, algorithm: fixed_window}"))
	r := insight.New(insight.Config{Rules: func() *rules.Set { return w.set }})
	on, keys := r.Events().OnDecision, keysOf(300)
	var all sync.WaitGroup
	const each = 5000
	for g := range 4 {
		all.Go(func() {
			for i := range each {
				d := allowed
				if (i+g)%4 == 0 {
					d = denied
				}
				on(context.Background(), sluice.Take{Rule: w.rule, Key: keys[(i*7+g)%len(keys)], Cost: 1}, d)
			}
		})
	}
	all.Go(func() {
		for range 50 {
			r.Verdicts()
		}
	})
	all.Wait()
	if n, refused := r.Decisions("r"); n != 4*each || refused != each {
		t.Errorf("%d decisions, %d denied, want %d, %d", n, refused, 4*each, each)
	}
}

// The number of distinct keys is right within four standard errors.
func TestDistinct(t *testing.T) {
	for _, n := range []int{1, 5, 100, 700, 5000, 30_000} {
		w := newWorld(t, 1, rule("10/s"))
		for range 2 {
			for _, key := range keysOf(n) {
				w.decide(key, allowed)
			}
		}
		got := w.recorder.Keys("r")
		if math.Abs(got-float64(n)) > max(1, 4*0.065*float64(n)) {
			t.Errorf("%d keys are counted as %.1f", n, got)
		}
	}
}

// The room that a followed key needs is the largest backlog of a queue that drains at the rate, rounded up.
func TestNeed(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 5))
	for range 50 {
		count := int64(1 + rnd.IntN(20))
		w := newWorld(t, 1, rule(fmt.Sprintf("%d/10s", count)))
		backlog, most, last := 0.0, 0.0, w.now
		for range 200 {
			w.now = w.now.Add(time.Duration(rnd.Int64N(3000)) * time.Millisecond)
			backlog = max(0, backlog-w.now.Sub(last).Seconds()*float64(count)/10) + 1
			most, last = max(most, backlog), w.now
			w.decide("k", allowed)
		}
		if got, want := w.recorder.Need("r", 0), int64(math.Ceil(most-1e-6)); got != want {
			t.Errorf("%d/10s: need %d, want %d", count, got, want)
		}
	}
}

// Decisions that say nothing about the limit are not recorded.
func TestIgnored(t *testing.T) {
	w := newWorld(t, 1, rule("10/s"))
	for _, source := range []sluice.Source{sluice.SourceFailLocal, sluice.SourceFailOpen, sluice.SourceFailClosed, sluice.SourceSuspended} {
		d := denied
		d.Source = source
		w.decide("k", d)
	}
	d := denied
	d.Blocked = true
	w.decide("k", d)
	on := w.recorder.Events().OnDecision
	on(context.Background(), sluice.Take{Rule: w.rule, Key: "k", Cost: -1}, allowed)
	on(context.Background(), sluice.Take{Rule: w.rule, Key: "k", Cost: 1, Receipt: 9}, allowed)
	on(context.Background(), sluice.Take{Rule: sluice.Must(sluice.NewRule(sluice.Rule{Name: "other", Limit: sluice.PerSecond(1)})), Key: "k", Cost: 1}, denied)
	if n, _ := w.recorder.Decisions("r"); n != 0 {
		t.Errorf("%d decisions are recorded", n)
	}
}

// After a reload a rule with the same limit keeps its record, one with another limit begins from zero.
func TestReload(t *testing.T) {
	w := newWorld(t, 1, rule("10/s"))
	w.decide("k", denied)
	w.set = parse(t, rule("10/s"))
	w.rule = w.set.LimiterRules()[0]
	w.decide("k", denied)
	if n, _ := w.recorder.Decisions("r"); n != 2 {
		t.Errorf("after a reload %d decisions, want 2", n)
	}
	w.set = parse(t, rule("20/s"))
	w.rule = w.set.LimiterRules()[0]
	w.decide("k", denied)
	if n, _ := w.recorder.Decisions("r"); n != 1 {
		t.Errorf("after a change of the limit %d decisions, want 1", n)
	}
	if _, ok := w.recorder.Verdict("none"); ok {
		t.Error("there is a verdict on a rule that does not exist")
	}
}

// A verdict fades: after two days without a request nothing of it is left.
func TestFades(t *testing.T) {
	x := tooStrict(t, plan{1, 3000, ""})
	x.run(t, x.duration())
	v, _ := x.recorder.Verdict("r")
	if v.Kind != insight.TooStrict || !v.Since.Equal(x.now.Truncate(time.Microsecond)) {
		t.Fatalf("got %+v at %v", v, x.now)
	}
	x.now = x.now.Add(48*time.Hour + time.Minute)
	if v, _ = x.recorder.Verdict("r"); v.Kind != insight.NeverNear || v.Text != "No request in 24 h." || !v.Since.Equal(x.now.Truncate(time.Microsecond)) {
		t.Errorf("after two days: %+v", v)
	}
}

// Kinds has the verdict that a limit has, and those that it had.
func TestKinds(t *testing.T) {
	x := tooStrict(t, plan{1, 3000, ""})
	x.recorder.Kinds()
	x.run(t, x.duration())
	want := map[string]bool{"no_verdict": false, "too_strict": true}
	if got := x.recorder.Kinds(); len(got) != 1 || !maps.Equal(got["r"], want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A security rule is never loosened by advice.
func TestSecurity(t *testing.T) {
	x := tooStrict(t, plan{1, 3000, ""})
	x.recorder.SetSecurity("r")
	x.run(t, x.duration())
	v, _ := x.recorder.Verdict("r")
	if v.Kind != insight.TooStrict || v.Advice.Limit != nil || v.Advice.Loosens || v.Advice.Text != "Security rule: never loosened by advice." {
		t.Errorf("got %+v", v)
	}
}

// A rule is too loose if its upstream sheds what it allowed.
func TestTooLoose(t *testing.T) {
	w := newWorld(t, 1, rule("100/s"))
	shed := int64(0)
	w.recorder = insight.New(insight.Config{
		Rules: func() *rules.Set { return w.set }, Now: func() time.Time { return w.now },
		Shed: func(string) (string, int64) { return "api", shed },
	})
	d := allowed
	for i := range 2000 {
		w.now = w.now.Add(5 * time.Second)
		d.Limit, d.Remaining = 100, 40+int64(i%50)
		w.decide(fmt.Sprint(i%20), d)
	}
	if v, _ := w.recorder.Verdict("r"); v.Kind != insight.Fits {
		t.Errorf("got %+v", v)
	}
	shed, w.now = 321, w.now.Add(time.Minute)
	v, _ := w.recorder.Verdict("r")
	if v.Kind != insight.TooLoose || v.Text != "Upstream api shed 321 requests while this rule allowed all of them." || v.Advice.Limit == nil || v.Advice.Limit.Count >= 100 {
		t.Errorf("got %+v", v)
	}
}

// A rule that counts all requests together cannot tell one abuser from many clients: it is loosened for bursts only.
func TestKeyless(t *testing.T) {
	for _, ordinary := range []bool{true, false} {
		w := newWorld(t, 1, "rules:\n  - {name: r, limit: {rate: 10/min, burst: 10}}\n")
		var v insight.Verdict
		for range 400 {
			for range 18 {
				w.call(t, "")
				w.now = w.now.Add(100 * time.Millisecond)
			}
			pause := 3 * time.Minute
			if !ordinary {
				pause = 20 * time.Second
			}
			w.now = w.now.Add(pause)
		}
		v, _ = w.recorder.Verdict("r")
		if ordinary && (v.Kind != insight.BurstsDenied || v.Advice.Limit == nil || v.Advice.Limit.Burst < 18) || !ordinary && (v.Kind != insight.NoVerdict || v.Advice.Loosens) {
			t.Errorf("got %+v", v)
		}
	}
}

func BenchmarkDecision(b *testing.B) {
	w := newWorld(b, 1, rule("10/s"))
	r := insight.New(insight.Config{Rules: func() *rules.Set { return w.set }})
	on, keys := r.Events().OnDecision, keysOf(4096)
	for _, c := range []struct {
		name string
		keys int
		d    sluice.Decision
	}{{"allowed", 4096, allowed}, {"denied", 4096, denied}, {"followed, allowed", 1, allowed}, {"followed, denied", 1, denied}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			t := sluice.Take{Rule: w.rule, Cost: 1}
			for i := range b.N {
				t.Key = keys[i%c.keys]
				on(context.Background(), t, c.d)
			}
		})
	}
}

// A concurrency limit has no rate: it is judged by its denials, and the advice has no number. Every other limit has one.
func TestLimits(t *testing.T) {
	for limit, advised := range map[string]bool{
		"{concurrent: 10}": false, "{rate: 10/s, algorithm: leaky_bucket}": true, "{rate: 10/day, algorithm: fixed_window, align: calendar}": true,
		"{rate: 10/min, algorithm: sliding_window_counter, sub_windows: 10}": true, "{rate: 10/min, refill: interval}": true,
		"{rate: 10/min, initial: 2}": true, "{rate: 10/min, algorithm: fixed_window, soft_excess: 2, soft_period: 10s}": true,
	} {
		w := newWorld(t, 1, rule(limit))
		for i := range 6000 {
			w.now = w.now.Add(40 * time.Millisecond)
			d := allowed
			if i/30%3 != 0 {
				d = denied
			}
			w.decide(fmt.Sprint("user", i%30), d)
		}
		v, _ := w.recorder.Verdict("r")
		if !v.Kind.NeedsChange() || !v.Advice.Loosens || (v.Advice.Limit != nil) != advised || v.Advice.Text == "" || len(v.Evidence) > 4 {
			t.Errorf("%s: %+v", limit, v)
		}
	}
}
