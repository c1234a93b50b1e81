package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
)

// History is a sequence of calls on a clock that mostly runs forwards. It can be applied to any number of stores, which
// must all return the same decisions.
type History struct {
	ops []op
}

// op is one call.
type op struct {
	at    int64 // time of the clock, in microseconds since the epoch
	takes []take
	one   bool // through a limiter, which uses the store's fast path if there is one

	// Instead of takes:
	keys  string // "reset" or "block"
	rule  *sluice.Rule
	key   string
	block time.Duration

	want []sluice.Decision // the reference's decisions
	fail error
}

// take is a sluice.Take whose Receipt is that of an earlier take's decision.
type take struct {
	sluice.Take
	label, settles int // numbers of takes; 0: none
}

// RandomHistory returns a history of n random calls: all algorithms, costs around the limit, several takes per call,
// changed limits, refunds, clocks that step. The same seed returns the same history.
func RandomHistory(seed uint64, n int) History {
	rng := rand.New(rand.NewPCG(seed, 0x5353))
	g := newGenerator(rng.IntN, Caps{})
	var h History
	for range n {
		h.ops = append(h.ops, g.next())
	}
	return h
}

// Len returns the number of calls.
func (h History) Len() int { return len(h.ops) }

// player applies a history's calls to a store.
type player struct {
	store sluice.Store
	clock *Clock
	ats   map[int]int64 // Decision.Receipt by label

	limiters map[*sluice.Rule]*sluice.Limiter
}

func newPlayer(store sluice.Store, clock *Clock) *player {
	return &player{store, clock, map[int]int64{}, map[*sluice.Rule]*sluice.Limiter{}}
}

// limiter returns a limiter with one rule.
func (p *player) limiter(r *sluice.Rule) *sluice.Limiter {
	if p.limiters[r] == nil {
		p.limiters[r] = sluice.Must(sluice.NewWithRules(p.store, []*sluice.Rule{r}))
	}
	return p.limiters[r]
}

// play applies one call and returns the decisions. Its error is the store's.
func (p *player) play(o *op) ([]sluice.Decision, error) {
	p.clock.Set(time.UnixMicro(o.at))
	ctx := context.Background()
	switch o.keys {
	case "reset":
		return nil, p.store.(sluice.StoreAdmin).Reset(ctx, sluice.Bucket{Rule: o.rule, Key: o.key})
	case "block":
		return nil, p.store.(sluice.StoreAdmin).Block(ctx, sluice.Bucket{Rule: o.rule, Key: o.key}, o.block)
	}
	takes, out := make([]sluice.Take, len(o.takes)), make([]sluice.Decision, len(o.takes))
	for i, t := range o.takes {
		takes[i] = t.Take
		if t.settles != 0 {
			takes[i].Receipt = p.ats[t.settles]
		}
	}
	var err error
	if o.one {
		out[0], err = p.limiter(takes[0].Rule).AllowN(ctx, takes[0].Key, takes[0].Cost)
	} else {
		err = p.store.Apply(ctx, takes, out)
	}
	if err != nil {
		return nil, err
	}
	for i, t := range o.takes {
		if t.label != 0 {
			p.ats[t.label] = out[i].Receipt
		}
	}
	return out, nil
}

// Compare applies random histories to the stores. It fails the test at the first decision that differs from that of the
// [Reference], and so from that of another store.
func Compare(t *testing.T, harnesses ...Harness) {
	t.Helper()
	histories, calls := 20, 300
	if soak() {
		histories, calls = 2000, 1000
	}
	for seed := range uint64(histories) {
		history := RandomHistory(seed, calls)
		for i, h := range harnesses {
			if h.Caps != (Caps{}) {
				t.Fatalf("harness %d declares Caps %+v: only stores with zero Caps can be compared", i, h.Caps)
			}
			if err := compareHistory(h.opener(t), history); err != nil {
				t.Fatalf("harness %d, seed %d: %v", i, seed, err)
			}
		}
	}
}

// compareHistory applies a history to a store and compares its decisions with those of the reference.
func compareHistory(open *opener, h History) error {
	player := newPlayer(open.store())
	for i := range h.ops {
		o := &h.ops[i]
		got, err := player.play(o)
		if err = compareAnswers(got, err, o); err != nil {
			return fmt.Errorf("call %d: %w\n%s", i, err, h.tail(i, o))
		}
	}
	return nil
}

func compareAnswers(got []sluice.Decision, err error, o *op) error {
	if err != nil && errors.Is(err, sluice.ErrInvalid) && o.fail != nil {
		return nil
	}
	if err != nil || o.fail != nil {
		return fmt.Errorf("got error %v, want %v", err, o.fail)
	}
	for i := range o.want {
		if got[i] != o.want[i] {
			return fmt.Errorf("take %d:\n got %s\nwant %s", i, describe(&got[i]), describe(&o.want[i]))
		}
	}
	return nil
}

// describe formats all fields of a decision.
func describe(d *sluice.Decision) string {
	var b strings.Builder
	verdict := "deny"
	switch {
	case d.Allowed:
		verdict = "allow"
	case d.ExceedsLimit:
		verdict = "never"
	}
	fmt.Fprintf(&b, "%s granted=%d remaining=%d of %d retry=%v reset=%v delay=%v at=%v",
		verdict, d.Granted, d.Remaining, d.Limit, d.RetryAfter, d.ResetAfter, d.Delay,
		time.UnixMicro(d.Receipt).UTC().Format("15:04:05.999999"))
	if d.Allowed && d.ExceedsLimit {
		b.WriteString(" (exceeds limit)")
	}
	if d.Source != sluice.SourceStore || d.ShadowDenied {
		fmt.Fprintf(&b, " source=%v shadow=%v", d.Source, d.ShadowDenied)
	}
	return b.String()
}

// tail formats the last calls up to the i-th that use the same keys.
func (h History) tail(i int, o *op) string {
	touched := map[string]bool{}
	for _, t := range o.takes {
		touched[t.Rule.Name+"\x00"+t.Key] = true
	}
	var lines []string
	for j := i; j >= 0 && len(lines) < 12; j-- {
		p := &h.ops[j]
		related := p.keys != "" && touched[p.rule.Name+"\x00"+p.key]
		for _, t := range p.takes {
			related = related || touched[t.Rule.Name+"\x00"+t.Key]
		}
		if related {
			lines = append([]string{fmt.Sprintf("%5d %s", j, p)}, lines...)
		}
	}
	return strings.Join(lines, "\n")
}

// String formats a call on one line.
func (o *op) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "at %v", time.UnixMicro(o.at).Sub(ClockStart))
	if o.keys != "" {
		fmt.Fprintf(&b, " %s %s %q %v", o.keys, o.rule.Name, o.key, o.block)
	}
	if o.one {
		b.WriteString(" (AllowN)")
	}
	for _, t := range o.takes {
		fmt.Fprintf(&b, "\n        %s[%v", t.Rule.Name, t.Rule.Limit)
		fmt.Fprintf(&b, " refill=%d align=%d rounding=%d sub=%d shadow=%v charge=%v]", t.Rule.Limit.Refill,
			t.Rule.Limit.Align, t.Rule.Limit.Rounding, t.Rule.Limit.SubWindows, t.Rule.Shadow, t.Rule.ChargeDenied)
		fmt.Fprintf(&b, " %q cost=%d min=%d maxdelay=%v id=%d label=%d settles=%d", t.Key, t.Cost, t.MinGrant, t.MaxDelay, t.IdempotencyID, t.label, t.settles)
	}
	return b.String()
}
