package remote

import (
	"context"
	"hash/maphash"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
	"github.com/sluiceproject/sluice/internal/table"
)

// far is a remote store with one shard.
type far struct{ table *table.Table }

func newFar() *far { return &far{table.New(table.Config{MaxBytes: 1 << 20})} }

func (*far) Shards() int         { return 1 }
func (*far) Shard(*group.Op) int { return 0 }

func (s *far) Apply(_ context.Context, ops []group.Op, out []group.Answer) error {
	answers := make([]step.Answer, len(ops))
	s.table.Apply(time.Now().UnixMicro(), ops, answers)
	for i := range ops {
		out[i] = group.AnswerOf(ops[i].Params, &answers[i])
	}
	return nil
}

var seed = maphash.MakeSeed()

func ruleNamed(name string) *group.Rule {
	return &group.Rule{ID: group.RuleID{A: maphash.String(seed, name), B: 1}, Name: name}
}

func compiled(p step.Params) *step.Params {
	p = step.Compile(p)
	return &p
}

const hour = 3600 * 1_000_000

func mustApply(t *testing.T, en *Engine, op group.Op) group.Answer {
	t.Helper()
	var out [1]group.Answer
	if err := en.Apply(t.Context(), []group.Op{op}, out[:]); err != nil {
		t.Fatal(err)
	}
	return out[0]
}

// A caller that found the estimate of a key before it was removed does not use it afterwards, because the usage would
// never be reported.
func TestEstimateForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rule := ruleNamed("r")
		rule.Accuracy, rule.OnFailure = group.AccuracyEventual, group.FailClosed
		p := compiled(step.Params{Kind: step.Bucket, Count: 10, Length: hour, Burst: 10})
		for name, forget := range map[string]func(en *Engine) error{
			"close": func(en *Engine) error { return en.Close(t.Context()) },
			"reset": func(en *Engine) error { en.Forget(rule, p, "k"); return nil },
			"idle":  func(*Engine) error { <-time.After(time.Second); synctest.Wait(); return nil },
		} {
			en := New(Config{Store: newFar()})
			op := rule.Op(p, "k", "", 1)
			if a := mustApply(t, en, op); !a.Allowed {
				t.Fatalf("%s: the first is %+v", name, a)
			}
			e := en.estimates.keys.find(rule, "k")
			if !e.decide(en, &op, time.Now(), &group.Answer{}) {
				t.Errorf("%s: not decided here", name)
			}
			if err := forget(en); err != nil {
				t.Fatal(err)
			}
			if e.decide(en, &op, time.Now(), &group.Answer{}) {
				t.Errorf("%s: decided by a removed estimate", name)
			}
			if err := en.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A key whose first decision is not stored yet is not reported: it has no usage and no rule yet.
func TestEstimateBeforeTheFirstAnswer(t *testing.T) {
	rule := ruleNamed("r")
	rule.Accuracy = group.AccuracyEventual
	op := rule.Op(compiled(step.Params{Kind: step.Window, Count: 10, Length: hour}), "k", "", 1)
	en := New(Config{Store: newFar()})
	en.estimates.keys.add(&op, func(name bucketID, tag string) *estimate { return &estimate{name: name, hashTag: tag} })
	if n := len(en.estimates.due(time.Now())); n != 0 {
		t.Errorf("%d keys are due, of which nothing is known", n)
	}
	if a := mustApply(t, en, op); !a.Allowed || a.Remaining != 9 {
		t.Errorf("its first request is %+v", a)
	}
	if err := en.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// The number of instances is no change of a limit's numbers: the store's buckets for leases, and the local counts of
// the fallback, keep their meaning when it changes.
func TestPartsAreNoChange(t *testing.T) {
	en := New(Config{Store: newFar()})
	for _, whole := range []*step.Params{
		compiled(step.Params{Kind: step.Bucket, Count: 100, Length: 24 * hour, Burst: 100}),
		compiled(step.Params{Kind: step.Bucket, Count: 7, Length: 1_000_000, Burst: 50}),
		compiled(step.Params{Kind: step.Bucket, Count: 100, Length: 60_000_000, Burst: 100}),
	} {
		for _, n := range []int{1, 2, 3, 7} {
			leased, shared := en.leasedLimit(whole, n), en.fallback.share(whole, n)
			for _, part := range []*step.Params{leased, shared} {
				if part.Shape() != whole.Shape() || part.Numbers() != whole.Numbers() {
					t.Errorf("%+v, %d processes: %+v has other numbers", whole, n, part)
				}
			}
			if n > 1 && (leased.Burst >= whole.Burst || shared.Burst >= whole.Burst) {
				t.Errorf("%+v, %d processes: %+v and %+v are no parts", whole, n, leased, shared)
			}
		}
	}
}

// In local fallback a key that this instance has not seen starts with its share of the initial level. A key that it has
// seen has its share of the remaining quota, whether that is more or less than the initial level.
func TestInitialInFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rule := ruleNamed("r")
		p := compiled(step.Params{Kind: step.Bucket, Count: 10, Length: hour, Burst: 10, HasInitial: true, Initial: 4})
		for _, instances := range []int64{1, 2} {
			en := New(Config{Store: newFar(), Instances: func() int { return int(instances) }})
			remaining := func(key string) int64 {
				var out [1]group.Answer
				en.failTakes([]group.Op{rule.Op(p, key, "", 0)}, out[:])
				return out[0].Remaining
			}
			mustApply(t, en, rule.Op(p, "spent", "", 2))
			mustApply(t, en, rule.Op(p, "full", "", 1))
			mustApply(t, en, rule.Op(p, "denied", "", 5))
			if new, spent, denied := remaining("new"), remaining("spent"), remaining("denied"); new != 4/instances || spent != 2/instances || denied != 4/instances {
				t.Errorf("%d instances: %d, %d and %d remain, want %d, %d and %d", instances, new, spent, denied, 4/instances, 2/instances, 4/instances)
			}
			<-time.After(time.Hour)
			mustApply(t, en, rule.Op(p, "full", "", 1))
			if full := remaining("full"); full != 9/instances {
				t.Errorf("%d instances: %d remain of a full bucket, want %d", instances, full, 9/instances)
			}
			if err := en.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Close stops background work and waits for it; nothing starts afterwards.
func TestCloseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w work
		w.closing = make(chan struct{})
		var ended atomic.Int64
		for range 3 {
			w.start(func() {
				if w.sleep(time.Hour) {
					t.Error("sleep was not interrupted")
				}
				<-time.After(time.Second)
				ended.Add(1)
			})
		}
		w.after(time.Minute, func() { t.Error("a timer outlived close") })
		w.close()
		if n := ended.Load(); n != 3 {
			t.Errorf("%d of 3 had ended", n)
		}
		if w.start(func() {}) || w.sleep(time.Nanosecond) {
			t.Error("something began after close")
		}
		w.after(time.Second, func() { t.Error("a timer began after close") })
		<-time.After(time.Hour)
	})
}
