package step_test

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/sluiceproject/sluice/internal/step"
)

// The loads are sessions that reserve in turn as soon as there is room, hold, and settle, repeatedly: 60,000 per
// minute. Their usage is compared with the usage if every settlement were exact.

// load generates sessions: an estimate, the actual cost (negative if it is never settled), and the duration in ms.
type load struct {
	name     string
	burst    int64
	sessions int
	draw     func(r *rand.Rand) (estimate, actual, hold int64)
}

func exponential(r *rand.Rand) int64 { return int64(r.ExpFloat64() * 10_000) }

func fixedLoad(estimate, actual, hold int64) func(*rand.Rand) (int64, int64, int64) {
	return func(*rand.Rand) (int64, int64, int64) { return estimate, actual, hold }
}

func randomLoad(estimate, actual int64) func(*rand.Rand) (int64, int64, int64) {
	return func(r *rand.Rand) (int64, int64, int64) { return estimate, actual, exponential(r) }
}

// guessedLoad returns sessions whose estimates are wrong by a factor; one in three ends early.
func guessedLoad(low, high float64, least, most float64) func(*rand.Rand) (int64, int64, int64) {
	between := func(r *rand.Rand, low, high float64) float64 { return low * math.Pow(high/low, r.Float64()) }
	return func(r *rand.Rand) (int64, int64, int64) {
		actual := int64(between(r, least, most))
		estimate := max(1, int64(float64(actual)*between(r, low, high)))
		if r.IntN(3) == 0 {
			actual = int64(float64(actual) * r.Float64())
		}
		return estimate, actual, exponential(r)
	}
}

var loads = []load{
	{"A", 60_000, 200, fixedLoad(10_000, 1000, 10_000)},
	{"B", 100_000, 200, fixedLoad(10_000, 1000, 10_000)},
	{"C", 60_000, 200, fixedLoad(5000, 1000, 10_000)},
	{"D", 60_000, 200, fixedLoad(10_000, 1000, 2000)},
	{"E", 60_000, 200, randomLoad(2000, 1000)},
	{"F", 60_000, 300, fixedLoad(600, 100, 10_000)},
	{"G", 60_000, 300, randomLoad(600, 100)},
	{"H", 60_000, 300, randomLoad(680, 100)},
	{"I", 60_000, 600, func(r *rand.Rand) (int64, int64, int64) {
		if r.IntN(5) == 0 {
			return 400, 100, 40_000
		}
		return 400, 100, 1000
	}},
	{"J", 60_000, 200, guessedLoad(.1, 10, 100, 3000)},
	{"K", 60_000, 300, guessedLoad(1, 10, 50, 300)},
	{"L", 60_000, 50, fixedLoad(18_000, 6000, 20_000)},
	{"M", 60_000, 50, fixedLoad(36_000, 3600, 20_000)},
	{"N", 60_000, 200, fixedLoad(100, 1000, 10_000)},
	{"O", 60_000, 200, func(r *rand.Rand) (int64, int64, int64) {
		actual := int64(1000)
		if r.IntN(20) == 0 {
			actual = -1
		}
		return 2000, actual, exponential(r)
	}},
}

// loaded is a bucket under load. Times are in ms; one unit is refilled per ms.
type loaded interface {
	reserve(now, cost int64) (at int64, ok bool)
	settle(now, at, charged, actual int64)
	backlog(now int64) int64
}

// exactBucket settles exactly: it keeps the lowest backlog since each unsettled reservation.
type exactBucket struct {
	burst, level, at int64
	out              []*lowest
}

type lowest struct{ at, low, charged int64 }

func (b *exactBucket) backlog(now int64) int64 {
	b.level, b.at = max(0, b.level-(now-b.at)), now
	for _, o := range b.out {
		if o.at < now {
			o.low = min(o.low, b.level)
		}
	}
	return b.level
}

func (b *exactBucket) reserve(now, cost int64) (int64, bool) {
	if b.backlog(now)+cost > b.burst {
		return 0, false
	}
	b.level += cost
	for _, o := range b.out {
		if o.at == now {
			o.low = b.level
		}
	}
	b.out = append(b.out, &lowest{now, b.level, cost})
	return now, true
}

func (b *exactBucket) settle(now, at, charged, actual int64) {
	b.backlog(now)
	i := slices.IndexFunc(b.out, func(o *lowest) bool { return o.at == at && o.charged == charged })
	o := b.out[i]
	b.out = slices.Delete(b.out, i, i+1)
	if actual >= charged {
		b.level += actual - charged
		return
	}
	low := o.low
	back := min(charged-actual, low)
	b.level -= back
	for _, other := range b.out { // the backlog since then is lower by that; before, it is unchanged
		if other.at < at {
			other.low = min(other.low, low-back)
		} else {
			other.low -= back
		}
	}
}

// stepBucket is the implementation in package step.
type stepBucket struct{ *key }

func (b stepBucket) backlog(now int64) int64 { return max(0, b.state.ExpiresAt-now*milli) / milli }

func (b stepBucket) reserve(now, cost int64) (int64, bool) {
	a := b.take(now*milli, step.Request{Cost: cost, Settles: true})
	return a.At / milli, a.Allowed
}

func (b stepBucket) settle(now, at, charged, actual int64) {
	b.key.settle(now*milli, step.Settlement{At: at * milli, Delta: actual - charged, Charged: charged, Of: b.p.Limit(), Settles: true})
}

// ending is a session that ends at a time.
type ending struct{ at, n, reserved, estimate, actual int64 }

type endings []ending

func (e endings) Len() int { return len(e) }
func (e endings) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].n < e[j].n
}
func (e endings) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *endings) Push(x any)   { *e = append(*e, x.(ending)) }
func (e *endings) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// run returns the usage as a fraction of the rate after a warm-up, and the maximum of usage − burst − refill − excess,
// where excess is the actual cost above the estimates of the unsettled sessions at one time.
func (l *load) run(b loaded, seconds, warm int64) (share float64, over int64) {
	type waiter struct{ estimate, actual, hold int64 }
	rnd := rand.New(rand.NewPCG(1, 27))
	draw := func() waiter {
		e, a, h := l.draw(rnd)
		return waiter{max(1, min(e, l.burst)), a, max(1, h)}
	}
	var waiting []waiter
	for range l.sessions {
		waiting = append(waiting, draw())
	}
	var out endings
	var log []ending // settled sessions; at is the time of the settlement
	start := int64(epoch / milli)
	now, n, used := start, int64(0), int64(0)
	for now < start+seconds*1000 {
		for len(waiting) > 0 {
			w := waiting[0]
			at, ok := b.reserve(now, w.estimate)
			if !ok {
				break
			}
			waiting = waiting[1:]
			n++
			heap.Push(&out, ending{now + w.hold, n, at, w.estimate, w.actual})
		}
		next := int64(math.MaxInt64)
		if len(out) > 0 {
			next = out[0].at
		}
		if len(waiting) > 0 {
			next = min(next, now+max(1, b.backlog(now)+waiting[0].estimate-l.burst))
		}
		now = next
		for len(out) > 0 && out[0].at <= now {
			e := heap.Pop(&out).(ending)
			if e.actual >= 0 {
				b.settle(now, e.reserved, e.estimate, e.actual)
				e.at = now
				log = append(log, e)
				if now > start+warm*1000 {
					used += e.actual
				}
			}
			waiting = append(waiting, draw())
		}
	}
	return float64(used) / float64((seconds-warm)*1000), l.over(log)
}

func (l *load) over(log []ending) int64 {
	type moment struct{ at, used, late int64 }
	var all []moment
	for _, e := range log {
		late := max(0, e.actual-e.estimate)
		all = append(all, moment{e.reserved, min(e.actual, e.estimate), late}, moment{e.at, late, -late})
	}
	slices.SortStableFunc(all, func(a, b moment) int { return int(a.at - b.at) })
	var level, at, worst, late, maxLate int64
	for _, m := range all {
		level, at = max(0, level-(m.at-at))+m.used, m.at
		worst = max(worst, level-l.burst)
		late += m.late
		maxLate = max(maxLate, late)
	}
	return worst - maxLate
}

// Sessions use at least 95 % of what they would use if every settlement were exact. They never use more than the burst,
// the refill, and the actual cost above the estimates of the sessions unsettled at one time.
func TestSettlingUnderLoad(t *testing.T) {
	seconds, warm := int64(240), int64(60)
	if os.Getenv("SLUICE_SOAK") != "" {
		seconds, warm = 1800, 600
	}
	for _, l := range loads {
		if os.Getenv("SLUICE_SOAK") == "" && !slices.Contains([]string{"A", "H", "J", "N"}, l.name) {
			continue
		}
		rule, over := l.run(stepBucket{newKey(step.Params{Kind: step.Bucket, Count: 1000, Length: second, Burst: l.burst})}, seconds, warm)
		exact, _ := l.run(&exactBucket{burst: l.burst}, seconds, warm)
		t.Logf("%s: %.3f of the rate, %.3f if exact; %d beyond the bound", l.name, rule, exact, max(0, over))
		if rule < 0.95*exact || exact < 0.1 {
			t.Errorf("%s: %.3f of the rate is too little, exact is %.3f", l.name, rule, exact)
		}
		if over > 0 {
			t.Errorf("%s: use went %d beyond the bound", l.name, over)
		}
	}
}
