package insight_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/operate/insight"
)

// traffic is what a planted case draws: a limit of count per window, and ordinary clients with a part of it each.
type traffic struct {
	*world
	count   int
	most    int64 // at once
	window  time.Duration
	windows float64 // duration of the traffic
}

// perClient returns the mean time between requests of a client that asks for a part of the limit's rate.
func (x *traffic) perClient(part float64) time.Duration {
	return time.Duration(float64(x.window) / (float64(x.count) * part))
}

func (x *traffic) duration() time.Duration {
	return min(time.Duration(x.windows*float64(x.window)), 22*time.Hour)
}

// plan is what a case is drawn from.
type plan struct {
	seed   uint64
	budget float64 // requests, roughly
	limit  string  // in place of the drawn one
}

// draw draws a rule, with a count in a range.
func draw(t testing.TB, p plan, algorithms []string, least, most float64) *traffic {
	rnd := rand.New(rand.NewPCG(p.seed, 8))
	w := &world{rnd: rnd}
	count, algorithm := int(w.between(least, most)), algorithms[rnd.IntN(len(algorithms))]
	window := []string{"s", "10s", "min", "10min"}[rnd.IntN(4)]
	limit := fmt.Sprintf("{rate: %d/%s, algorithm: %s}", count, window, algorithm)
	if algorithm == "token_bucket" {
		limit = fmt.Sprintf("{rate: %d/%s, burst: %d}", count, window, max(1, int(float64(count)*w.between(0.3, 3))))
	}
	x := &traffic{world: newWorld(t, p.seed, rule(limit)), count: count}
	x.window, x.most = x.rule.Limit.Window, x.rule.Limit.Max()
	if p.limit != "" {
		x.world = newWorld(t, p.seed, rule(p.limit))
	}
	return x
}

// reaction is what a client does after a denial.
type reaction int

const (
	heeds      reaction = iota // waits for RetryAfter and a little more, and retries
	heedsWhole                 // likewise, in whole seconds as in HTTP
	givesUp                    // goes on with its next request
	reactions
)

// honest returns a client with random requests.
func (x *traffic) honest(part float64, r reaction) func(*world, *sluice.Decision) time.Duration {
	mean := x.perClient(part)
	return func(w *world, d *sluice.Decision) time.Duration {
		if d != nil && !d.Allowed && r != givesUp {
			wait := d.RetryAfter
			if r == heedsWhole {
				wait = (wait + time.Second - 1).Truncate(time.Second)
			}
			return wait + time.Duration(float64(wait)*0.2*w.rnd.Float64()) + time.Duration(w.rnd.Int64N(int64(20*time.Millisecond)))
		}
		return w.random(mean)
	}
}

// crowd adds ordinary clients with a key each.
func (x *traffic) ordinary(n int, from, to float64) {
	for i := range n {
		x.add(fmt.Sprint("user", i), 0, x.honest(x.between(from, to), reaction(x.rnd.IntN(int(reactions)))))
	}
}

var anyAlgorithm = []string{"token_bucket", "fixed_window", "sliding_window_counter", "sliding_window_log"}

// planted is a case: how its traffic is made, and the verdicts that are right.
type planted struct {
	name  string
	make  func(t testing.TB, p plan) *traffic
	right []insight.Kind
}

var cases = []planted{
	{"too strict", tooStrict, []insight.Kind{insight.TooStrict}},
	{"lone abuser", abuser, []insight.Kind{insight.OneAbuser}},
	{"flash sale", flashSale, []insight.Kind{insight.BurstsDenied}},
	{"boundary doubler", doubler, []insight.Kind{insight.BoundaryDoubling}},
	{"bot", bot, []insight.Kind{insight.OneAbuser}},
	{"idle rule", idle, []insight.Kind{insight.NeverNear}},
	{"honest crowd", crowd, []insight.Kind{insight.SharedKey}},
}

// All or most clients ask for more than the limit's rate.
func tooStrict(t testing.TB, p plan) *traffic {
	x := draw(t, p, anyAlgorithm, 3, 30)
	factor := x.between(1.3, 6)
	n := int(x.between(5, 60))
	x.windows = max(10, p.budget/(float64(n*x.count)*factor))
	x.ordinary(n, factor*0.7, factor*1.4)
	return x
}

// Ordinary clients, and one that ignores denials.
func abuser(t testing.TB, p plan) *traffic {
	x := draw(t, p, anyAlgorithm, 6, 60)
	n, times := int(x.between(10, 200)), x.between(4, 60)
	x.windows = max(10, p.budget/(float64(x.count)*(times+0.15*float64(n))))
	x.ordinary(n, 0.05, 0.3)
	from := x.rnd.Float64() * 0.5 * x.windows
	until := from + (0.3+0.2*x.rnd.Float64())*x.windows
	begin := x.begin
	end := begin.Add(time.Duration(until * float64(x.window)))
	mean, kind := x.perClient(times), x.rnd.IntN(4)
	x.add("abuser", time.Duration(from*float64(x.window)), func(w *world, d *sluice.Decision) time.Duration {
		if w.now.After(end) {
			return -1
		}
		switch kind {
		case 0: // even
			return time.Duration(float64(mean) * (0.9 + 0.2*w.rnd.Float64()))
		case 1: // random
			return w.random(mean)
		case 2: // retries at once after a denial
			if d != nil && !d.Allowed {
				return time.Duration(float64(mean) * (0.2 + 0.4*w.rnd.Float64()))
			}
			return w.random(2 * mean)
		}
		// as fast as responses come, with their jitter
		return time.Duration(float64(mean) * (0.5 + w.rnd.Float64()))
	})
	return x
}

// For some minutes, clients ask for many times of what they ask for otherwise, and for more than a full bucket holds.
func flashSale(t testing.TB, p plan) *traffic {
	for ; ; p.seed += 1 << 32 {
		x := draw(t, p, anyAlgorithm, 5, 40)
		sale := time.Duration(x.between(3, 15) * float64(time.Minute))
		length, factor := float64(sale)/float64(x.window), x.between(2, 6)
		n := p.budget / (length * float64(x.count) * factor)
		held := float64(x.most) / float64(x.count) // windows
		if n < 10 || n > 300 || length*factor < 1.5*(held+length) {
			continue
		}
		x.windows = length * x.between(12, 60)
		x.sell(int(n), length, factor)
		return x
	}
}

func (x *traffic) sell(n int, length, factor float64) {
	from := x.windows * (0.1 + 0.7*x.rnd.Float64())
	x.ordinary(n, 0.01, 0.08)
	stop := x.begin.Add(time.Duration((from + length) * float64(x.window)))
	for i := range n {
		if x.rnd.IntN(10) < 2 {
			continue // not interested
		}
		key := fmt.Sprint("user", i)
		if x.rnd.IntN(2) == 0 {
			key = fmt.Sprint("new", i)
		}
		buy := x.honest(factor*x.between(0.6, 1.6), reaction(x.rnd.IntN(int(reactions))))
		x.add(key, time.Duration((from+0.3*length*x.rnd.Float64())*float64(x.window)), func(w *world, d *sluice.Decision) time.Duration {
			if w.now.After(stop) {
				return -1
			}
			return buy(w, d)
		})
	}
}

// A client uses the limit up at the end of a window, and again at the beginning of the next one.
func doubler(t testing.TB, p plan) *traffic {
	x := draw(t, p, []string{"fixed_window"}, 5, 100)
	n := int(x.between(10, 100))
	x.windows = max(25, p.budget/(float64(x.count)*(1+0.15*float64(n))))
	x.ordinary(n, 0.05, 0.3)
	every := int64(2 + x.rnd.IntN(3))
	near := x.between(0.03, 0.3)
	part := 0.85 + 0.2*x.rnd.Float64()
	first := x.begin.Truncate(x.window).Add(x.window)
	var queue []time.Time
	boundary := first
	x.add("doubler", 0, func(w *world, d *sluice.Decision) time.Duration {
		for len(queue) == 0 || !queue[0].After(w.now) {
			if len(queue) > 0 {
				queue = queue[1:]
				continue
			}
			each := int(part * float64(x.count))
			for side := range 2 {
				for range each {
					off := time.Duration(near * float64(x.window) * w.rnd.Float64())
					if side == 0 {
						off = -off
					}
					queue = append(queue, boundary.Add(off))
				}
			}
			slices.SortFunc(queue, func(a, b time.Time) int { return a.Compare(b) })
			boundary = boundary.Add(time.Duration(every) * x.window)
		}
		return queue[0].Sub(w.now)
	})
	return x
}

// One to three clients with an even pace above the limit.
func bot(t testing.TB, p plan) *traffic {
	x := draw(t, p, anyAlgorithm, 6, 60)
	n, times, bots := int(x.between(20, 200)), x.between(1.5, 15), 1+x.rnd.IntN(3)
	bots = min(bots, n/20)
	x.windows = max(10, p.budget/(float64(x.count)*(times*float64(bots)+0.15*float64(n))))
	x.ordinary(n, 0.05, 0.3)
	jitter := 0.15 * x.rnd.Float64()
	for i := range bots {
		mean := x.perClient(times * x.between(0.7, 1.3))
		x.add(fmt.Sprint("bot", i), 0, func(w *world, _ *sluice.Decision) time.Duration {
			return time.Duration(float64(mean) * (1 - jitter + 2*jitter*w.rnd.Float64()))
		})
	}
	return x
}

// All clients stay far below the limit.
func idle(t testing.TB, p plan) *traffic {
	x := draw(t, p, anyAlgorithm, 40, 1000)
	n, part := int(x.between(5, 100)), x.between(0.005, 0.08)
	x.windows = max(10, p.budget/(float64(n*x.count)*part))
	x.ordinary(n, part*0.5, part*1.5)
	return x
}

// Many ordinary clients have one key together, among others with one each.
func crowd(t testing.TB, p plan) *traffic {
	x := draw(t, p, anyAlgorithm, 6, 60)
	n, members := int(x.between(10, 100)), int(x.between(10, 150))
	part := x.between(1.5, 20) / float64(members)
	part = max(0.03, min(part, 0.3))
	x.windows = max(10, p.budget/(float64(x.count)*part*float64(members+n)))
	x.ordinary(n, part*0.6, part*1.5)
	for range members {
		x.add("office", 0, x.honest(part*x.between(0.6, 1.5), reaction(x.rnd.IntN(int(reactions)))))
	}
	return x
}

// TestPlanted prints the confusion matrix of the planted cases.
func TestPlanted(t *testing.T) {
	seeds, budget := 50, 3500.0
	if os.Getenv("SLUICE_SOAK") != "" {
		seeds, budget = 1000, 10000
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, right, loosened := map[insight.Kind]int{}, 0, 0
			for seed := range uint64(seeds) {
				x := c.make(t, plan{seed, budget, ""})
				x.run(t, x.duration())
				v, _ := x.recorder.Verdict("r")
				got[v.Kind]++
				if slices.Contains(c.right, v.Kind) {
					right++
				} else {
					t.Logf("seed %d: %d requests in %v, limit %v: %s: %s (%s) %s", seed, x.requests, x.duration(), x.rule.Limit, v.Kind, v.Text,
						strings.Join(v.Evidence, "; "), v.Advice.Text)
				}
				if v.Advice.Loosens {
					loosened++
				}
			}
			t.Logf("%s: %v", c.name, got)
			if right*100 < 95*seeds {
				t.Errorf("%d of %d verdicts are right", right, seeds)
			}
			if loosened > 0 && (c.name == "lone abuser" || c.name == "bot") {
				t.Errorf("%d times the advice is to loosen the limit", loosened)
			}
		})
	}
}

// The advice is right. With a limit raised by it, few of the denied clients of a rule that was too strict are still denied, or as
// many as it says. A larger burst for a flash sale helps most: clients that waited for RetryAfter then ask for more than they did.
func TestAdvice(t *testing.T) {
	for _, c := range []planted{cases[0], cases[2]} {
		advised, good, before, after := 0, 0, 0, 0
		for seed := range uint64(12) {
			x := c.make(t, plan{seed, 2500, ""})
			x.run(t, x.duration())
			v, _ := x.recorder.Verdict("r")
			if v.Advice.Limit == nil {
				continue
			}
			advised++
			y := c.make(t, plan{seed, 2500, insight.RuleText(v.Advice.Limit)})
			y.run(t, y.duration())
			was, is := len(x.refused), len(y.refused)
			before, after = before+was, after+is
			if is <= max(was/4, 3+3*int(v.Advice.Denied)/2) {
				good++
			}
			if is > was {
				t.Errorf("%s, seed %d: limit %v denied %d keys, %v denies %d: %s", c.name, seed, x.rule.Limit, was, y.rule.Limit, is, v.Advice.Text)
			}
		}
		t.Logf("%s: %d of %d advices are good; %d keys denied before, %d after", c.name, good, advised, before, after)
		if advised < 9 || c.name == "too strict" && good*20 < 19*advised || 4*after > before {
			t.Errorf("%s: %d of %d advices are good; %d keys denied before, %d after", c.name, good, advised, before, after)
		}
	}
}
