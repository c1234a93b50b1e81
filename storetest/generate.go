package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/private"
)

// generator generates the calls of a random history. It applies them to a reference as it goes, so that it can aim at
// the times where decisions change, and avoids calls on a clock set back that depend on state which stores may have
// removed.
type generator struct {
	draw   func(n int) int
	caps   Caps
	model  *Reference
	player *player
	rules  []*sluice.Rule
	keys   []string
	now    int64
	aims   []time.Duration            // interesting times, relative to now
	labels []labelled                 // takes that can be settled
	limits map[string][]*sluice.Limit // all limits of a kind that each rule has had
	taken  int
}

type labelled struct {
	label, granted int
	rule           *sluice.Rule
	key            string
}

func newGenerator(draw func(n int) int, caps Caps) *generator {
	clock := NewClock()
	model := NewReference(clock)
	g := &generator{
		draw: draw, caps: caps, model: model, player: newPlayer(model, clock),
		keys: []string{"a", "b", "c"}, now: ClockStart.UnixMicro(), limits: map[string][]*sluice.Limit{},
	}
	for i := range 2 + draw(4) {
		r := g.rule(fmt.Sprintf("r%d", i))
		g.rules = append(g.rules, r)
		g.had(r)
	}
	return g
}

// oneIn reports whether a random event of probability 1/n occurs.
func (g *generator) oneIn(n int) bool { return g.draw(n) == n-1 }

func pick[T any](g *generator, from ...T) T { return from[g.draw(len(from))] }

func (g *generator) rule(name string) *sluice.Rule {
	r := sluice.Rule{Name: name, Limit: g.limit(), Shadow: g.oneIn(6), ChargeDenied: g.oneIn(5)}
	r.ChargeDenied = r.ChargeDenied && r.Limit.Algorithm != sluice.Concurrency
	return sluice.Must(sluice.NewRule(r))
}

func (g *generator) limit() sluice.Limit {
	l := sluice.Limit{
		Algorithm: pick(g, sluice.TokenBucket, sluice.LeakyBucket, sluice.LeakyQueue, sluice.FixedWindow,
			sluice.SlidingWindowLog, sluice.SlidingWindowCounter, sluice.Concurrency),
		Count:  pick(g, 1, 2, 3, 5, 7, 10, int64(1+g.draw(30))),
		Window: pick(g, windows...),
	}
	switch l.Algorithm {
	case sluice.TokenBucket:
		if g.oneIn(3) {
			l.Refill = sluice.RefillInterval
			l.Align = pick(g, sluice.AlignEpoch, sluice.AlignFirstRequest)
		}
		l.Burst = pick(g, 0, l.Count, int64(1+g.draw(20)))
		if l.Refill == sluice.RefillContinuous && g.oneIn(3) {
			l = l.WithInitial(int64(g.draw(int(l.Max()))))
		}
	case sluice.LeakyBucket, sluice.LeakyQueue:
		l.Burst = pick(g, 0, l.Count, int64(1+g.draw(20)))
	case sluice.FixedWindow:
		l.Align = pick(g, sluice.AlignEpoch, sluice.AlignFirstRequest)
		if g.oneIn(4) {
			l = sluice.PerCalendar(l.Count, pick(g, sluice.CalendarDay, sluice.CalendarWeek, sluice.CalendarMonth, sluice.CalendarYear), nil)
		} else if g.oneIn(3) {
			l.SoftExcess, l.SoftPeriod = int64(1+g.draw(4)), time.Duration(1+g.draw(int(l.Window/time.Microsecond)))*time.Microsecond
		}
	case sluice.SlidingWindowCounter:
		l.Rounding = pick(g, sluice.RoundDown, sluice.RoundNearest)
		if n := pick(g, 0, 0, 2, 4, 5, 20); n > 0 && l.Window/time.Duration(n) >= time.Millisecond {
			l.SubWindows = n
		}
	}
	return l
}

// next returns a random call.
func (g *generator) next() op {
	o := op{at: g.time()}
	switch {
	case g.oneIn(40) && !g.caps.NoAdmin:
		o.keys, o.rule, o.key = pick(g, "reset", "block"), pick(g, g.rules...), pick(g, g.keys...)
		if o.keys == "block" {
			o.block = pick(g, 0, time.Millisecond, time.Second, time.Minute)
		}
	default:
		if g.oneIn(30) {
			g.change()
		}
		for range pick(g, 1, 1, 1, 1, 2, 2, 3, 4) {
			if t := g.take(); !quarrels(o.takes, &t) {
				o.takes = append(o.takes, t)
			}
		}
		o.one = len(o.takes) == 1 && isPlain(&o.takes[0]) && g.oneIn(2)
	}
	if g.model.uncertain(g.touched(&o), o.at) {
		o.at = g.model.latest
	}
	g.now = o.at
	g.follow(&o)
	return o
}

// quarrels reports whether a call with t would settle a take and take from the same bucket, or use an ID twice on it.
func quarrels(takes []take, t *take) bool {
	return slices.ContainsFunc(takes, func(o take) bool {
		same := o.Rule.Name == t.Rule.Name && o.Key == t.Key
		return same && (o.settles != 0 || t.settles != 0 || o.IdempotencyID != 0 && o.IdempotencyID == t.IdempotencyID)
	})
}

// touched returns the takes of the call, or the bucket of a reset or block as a take.
func (g *generator) touched(o *op) []sluice.Take {
	if o.keys != "" {
		return []sluice.Take{{Rule: o.rule, Key: o.key}}
	}
	takes := make([]sluice.Take, len(o.takes))
	for i := range o.takes {
		takes[i] = o.takes[i].Take
	}
	return takes
}

func isPlain(t *take) bool {
	return t.Cost > 0 && t.MinGrant == 0 && t.MaxDelay == 0 && t.IdempotencyID == 0 && t.settles == 0 && t.Limit == nil &&
		!t.Rule.Shadow && !t.Rule.ChargeDenied
}

// time moves the clock: not at all, by a part of some window, to a time where a decision changes, or back.
func (g *generator) time() int64 {
	window := pick(g, g.rules...).Limit.Window.Microseconds()
	switch g.draw(12) {
	case 0, 1, 2, 3:
		return g.now
	case 4:
		return g.now + 1
	case 5, 6:
		return g.now + window/int64(2+g.draw(30))
	case 7:
		return g.now + window*int64(1+g.draw(3))
	case 8, 9, 10:
		if len(g.aims) > 0 {
			return g.now + max(0, pick(g, g.aims...).Microseconds()-int64(g.draw(2)))
		}
		return g.now + window/3
	}
	back := pick(g, 1, window/int64(2+g.draw(5)), window, time.Hour.Microseconds())
	return max(g.now-back, ClockStart.Add(-24*time.Hour).UnixMicro())
}

// change changes the limit of a rule, or its algorithm.
func (g *generator) change() {
	i := g.draw(len(g.rules))
	r := *g.rules[i]
	l := r.Limit
	if g.oneIn(4) {
		l = g.limit()
	} else {
		l.Count = pick[int64](g, 1, 2, 4, 5, 10, 20)
		if l.Burst > 0 {
			l.Burst = int64(1 + g.draw(20))
		}
		if l.Initial != 0 {
			l = l.WithInitial(int64(g.draw(int(l.Max()))))
		}
		if l.Align != sluice.AlignCalendar && g.oneIn(2) {
			l.Window = pick(g, windows...)
			l.SoftPeriod = min(l.SoftPeriod, l.Window)
		}
	}
	r.Limit = l
	changed, err := sluice.NewRule(r)
	if err != nil || !g.certain(changed) {
		return
	}
	g.rules[i] = changed
	g.had(changed)
	if remembersAll(&changed.Limit) { // settling under the old limit would make the log grow again
		g.labels = slices.DeleteFunc(g.labels, func(l labelled) bool { return l.rule.Name == changed.Name })
	}
}

// had records a limit of a rule.
func (g *generator) had(r *sluice.Rule) {
	name := r.Name + " " + kindOf(&r.Limit)
	g.limits[name] = append(g.limits[name], &r.Limit)
}

// certain reports whether all stores convert the usage in the same way if a rule's limit changes to this one. Buckets
// must have whole microseconds per token, so that no fraction is lost. Logs must not get longer, because stores differ
// in how soon they remove expired entries.
func (g *generator) certain(changed *sluice.Rule) bool {
	l := &changed.Limit
	exact := func(l *sluice.Limit) bool {
		return kindOf(l) != "bucket" && kindOf(l) != "initial" || l.Window.Microseconds()%l.Count == 0
	}
	for _, old := range g.limits[changed.Name+" "+kindOf(l)] {
		if records(changed) || !exact(l) || !exact(old) || remembersAll(l) && l.Window > old.Window {
			return false
		}
	}
	return !g.ambiguous(changed)
}

// ambiguous reports whether the limit of a rule has the shape of another limit that the rule has had. Stores distinguish limits
// by a shape of 8 bits, and buckets with an initial level share the shapes of other buckets.
func (g *generator) ambiguous(changed *sluice.Rule) bool {
	l, kinds := &changed.Limit, []string{kindOf(&changed.Limit)}
	if kinds[0] == "bucket" || kinds[0] == "initial" {
		kinds = []string{"bucket", "initial"}
	}
	for _, kind := range kinds {
		for _, old := range g.limits[changed.Name+" "+kind] {
			if !sameShape(l, old) && private.ParamsOf(l).Shape() == private.ParamsOf(old).Shape() {
				return true
			}
		}
	}
	return false
}

// sameShape reports whether a state under one limit means the same under the other.
func sameShape(a, b *sluice.Limit) bool {
	switch kindOf(a) {
	case "bucket", "initial":
		return fillOf(a).Cmp(fillOf(b)) == 0
	case "interval":
		return a.Count == b.Count && a.Window == b.Window && a.Burst == b.Burst
	}
	return shapeOf(a) == shapeOf(b)
}

// windows are the windows of random limits.
var windows = []time.Duration{
	time.Millisecond, 7 * time.Millisecond, 500 * time.Millisecond, time.Second, 3 * time.Second, 10 * time.Second,
	time.Minute, 25 * time.Minute,
}

// remembersAll reports whether a limit stores each take.
func remembersAll(l *sluice.Limit) bool {
	return l.Algorithm == sluice.SlidingWindowLog || l.Algorithm == sluice.Concurrency
}

// records reports whether a rule is a log that stores denied requests too.
func records(r *sluice.Rule) bool {
	return r.ChargeDenied && r.Limit.Algorithm == sluice.SlidingWindowLog
}

// take returns a random take.
func (g *generator) take() take {
	if len(g.labels) > 0 && g.oneIn(10) {
		return g.settling()
	}
	t := take{Take: sluice.Take{Rule: pick(g, g.rules...), Key: pick(g, g.keys...)}}
	size := maxOf(&t.Rule.Limit)
	switch g.draw(12) {
	case 0:
		t.Cost, t.DryRun = 0, g.oneIn(2)
	case 1:
		t.Cost = size
	case 2:
		t.Cost = size + 1
	case 3, 4, 5:
		t.Cost = int64(1 + g.draw(int(size)))
	case 6:
		t.Cost = pick(g, size+5, 1<<31, 1<<40, sluice.MaxCost)
	default:
		t.Cost = 1
	}
	if g.oneIn(8) {
		t.MaxDelay = time.Duration(g.draw(2*int(t.Rule.Limit.Window/time.Microsecond))) * time.Microsecond
	}
	if t.Cost > 0 && g.oneIn(8) {
		t.MinGrant = int64(1 + g.draw(int(min(t.Cost, 2*size))))
	}
	if t.Cost > 0 && g.oneIn(8) && !g.caps.NoIdempotency {
		t.IdempotencyID = uint64(1 + g.draw(4))
	}
	g.taken++
	t.label = g.taken
	return t
}

// settling returns a refund of an earlier take, or an additional charge.
func (g *generator) settling() take {
	l := pick(g, g.labels...)
	t := take{Take: sluice.Take{Rule: l.rule, Key: l.key, Receipt: 1}, settles: l.label}
	t.Cost = -int64(1 + g.draw(l.granted))
	if g.oneIn(3) {
		t.Cost = int64(1 + g.draw(2*l.granted))
	}
	return t
}

// counted reports whether a take's bucket has unexpired usage. It has none if the take was charged before the rule
// changed to another kind of limit and only its ID is stored.
func (g *generator) counted(t *take) bool { return g.model.meter(&t.Take).hasExpired() > g.now }

// follow applies the call to the model and records interesting times.
func (g *generator) follow(o *op) {
	o.want, o.fail = g.player.play(o)
	for i, d := range o.want {
		renewed := time.Duration(0) // when a key is fully reset
		if len(o.takes) > i && o.takes[i].EffectiveLimit().Initial != 0 && g.oneIn(5) {
			renewed = d.ResetAfter + 24*time.Hour
		}
		for _, aim := range []time.Duration{d.RetryAfter, d.ResetAfter, d.Delay, renewed} {
			if aim > 0 && aim < 48*time.Hour {
				g.aims = append(g.aims, aim)
			}
		}
		// A log that stores denied requests drops entries that no decision can depend on, which then cannot be
		// refunded.
		if t := &o.takes[i]; d.Allowed && d.Granted > 0 && t.label != 0 && !records(t.Rule) && g.counted(t) {
			g.labels = append(g.labels, labelled{t.label, int(d.Granted), t.Rule, t.Key})
		}
	}
	g.aims = g.aims[max(0, len(g.aims)-6):]
	g.labels = g.labels[max(0, len(g.labels)-8):]
}
