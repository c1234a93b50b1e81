package step_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/internal/step"
)

var update = flag.Bool("update", false, "write the tables of the sliding counter's accuracy into docs/algorithms.md")

// limiter decides the requests of all clients of one traffic.
type limiter func(arrival) bool

// form is a limiter that is compared with the exact log.
type form struct {
	name string
	make func(tr *traffic) limiter
}

// The sliding counter with one window, and with sub-windows.
var counterForms = []form{
	{"1 window", product(step.Params{Kind: step.Counter})},
	{"2 sub-windows", product(step.Params{Kind: step.Slices, Slices: 2})},
	{"4", product(step.Params{Kind: step.Slices, Slices: 4})},
	{"10", product(step.Params{Kind: step.Slices, Slices: 10})},
}

var (
	allowAll = form{"allow everything", func(*traffic) limiter { return func(arrival) bool { return true } }}
	denyAll  = form{"deny everything", func(*traffic) limiter { return func(arrival) bool { return false } }}
	// coin denies as many requests as the exact log does, at random.
	coin = form{"deny at random", func(tr *traffic) limiter {
		rnd, s := rand.New(rand.NewPCG(4, 4)), tr.play(form{"", exactLog})
		return func(arrival) bool { return rnd.IntN(s.requests) >= s.denied }
	}}
	windowForm = form{"fixed window", product(step.Params{Kind: step.Window})}
)

// product decides with package step, as the stores do.
func product(p step.Params) func(tr *traffic) limiter {
	return func(tr *traffic) limiter {
		p.Count, p.Length = tr.limit, tr.window
		keys := map[int64]*key{}
		return func(r arrival) bool {
			k := keys[r.client]
			if k == nil {
				k = newKey(p)
				keys[r.client] = k
			}
			return k.allow(r.at, r.cost)
		}
	}
}

// inWindow is the usage of each client in the window (t − W, t].
type inWindow struct {
	window  int64
	clients []struct {
		log []arrival
		sum int64
	}
}

func newInWindow(tr *traffic) *inWindow {
	w := &inWindow{window: tr.window}
	for _, r := range tr.arrivals {
		for int64(len(w.clients)) <= r.client {
			w.clients = append(w.clients, struct {
				log []arrival
				sum int64
			}{})
		}
	}
	return w
}

// before returns the usage of the request's client without the request.
func (w *inWindow) before(r arrival) int64 {
	c := &w.clients[r.client]
	for len(c.log) > 0 && c.log[0].at <= r.at-w.window {
		c.sum -= c.log[0].cost
		c.log = c.log[1:]
	}
	return c.sum
}

func (w *inWindow) add(r arrival) {
	c := &w.clients[r.client]
	c.log = append(c.log, r)
	c.sum += r.cost
}

// exactLog is the definition of the sliding log: a request is allowed if, with it, the allowed requests in the window
// (t − W, t] are at most the limit. It shares no code with the product.
func exactLog(tr *traffic) limiter {
	allowed := newInWindow(tr)
	return func(r arrival) bool {
		if allowed.before(r)+r.cost > tr.limit {
			return false
		}
		allowed.add(r)
		return true
	}
}

// tally compares the decisions of a limiter with those of the exact log for the same requests. A decision is wrong if
// the log decides otherwise.
type tally struct {
	requests, due int // due is the number of denials of the log
	denied        int
	wrong         int
	missed        int     // allowed by the limiter, of due
	most          float64 // maximum that was allowed in any window, relative to the limit
}

func (s *tally) add(o tally) {
	s.requests += o.requests
	s.due += o.due
	s.denied += o.denied
	s.wrong += o.wrong
	s.missed += o.missed
	s.most = max(s.most, o.most)
}

// skill is the fraction of due denials that were made, minus the fraction of other requests that were denied. It is 0
// for a limiter that ignores its input, whether it allows all, denies all or decides at random.
func (s *tally) skill() float64 {
	made := float64(s.due-s.missed) / float64(s.due)
	return made - float64(s.wrong-s.missed)/float64(s.requests-s.due)
}

func percent(n, of int) string {
	if of == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", 100*float64(n)/float64(of))
}

// Upper bounds of the ranges of a client's usage within the window, in per cent of its limit.
var distances = []int64{50, 80, 100, 120, 150, 1 << 40}

func (tr *traffic) play(f form) tally { return tr.playBy(f, nil) }

// playBy also adds each decision to the tally of its distance from the limit.
func (tr *traffic) playBy(f form, by []tally) tally {
	var s tally
	exact, l := exactLog(tr), f.make(tr)
	allowed, offered := newInWindow(tr), newInWindow(tr)
	for _, r := range tr.arrivals {
		want, got := exact(r), l(r)
		one := tally{requests: 1}
		if !want {
			one.due = 1
		}
		if !got {
			one.denied = 1
		}
		if want != got {
			one.wrong = 1
			if got {
				one.missed = 1
			}
		}
		if sum := allowed.before(r) + r.cost; got {
			allowed.add(r)
			one.most = float64(sum) / float64(tr.limit)
		}
		demand := (offered.before(r) + r.cost) * 100
		offered.add(r)
		for i, end := range distances {
			if by != nil && demand <= end*tr.limit {
				by[i].add(one)
				break
			}
		}
		s.add(one)
	}
	return s
}

// checkAccuracy checks that a limiter's decisions depend on the limit, for each traffic and for all together.
func checkAccuracy(all []traffic, f form) error {
	var faults []error
	var sum float64
	for i := range all {
		s := all[i].play(f)
		sum += s.skill()
		if s.skill() < 0.05 {
			faults = append(faults, fmt.Errorf("%s: %s makes %d of %d denials that are due, and %d others of %d",
				all[i].name, f.name, s.due-s.missed, s.due, s.wrong-s.missed, s.requests-s.due))
		}
	}
	if mean := sum / float64(len(all)); mean < 0.4 {
		faults = append(faults, fmt.Errorf("%s: a mean skill of %.2f, want 0.4", f.name, mean))
	}
	return errors.Join(faults...)
}

// TestCounterAccuracy measures how often the sliding counter and the exact log differ. Its numbers are those of
// docs/algorithms.md.
func TestCounterAccuracy(t *testing.T) {
	all := accuracyTraffic(t)
	for i := range all {
		s := all[i].play(form{"exact log", exactLog})
		if share := float64(s.due) / float64(s.requests); share < 0.001 || share > 0.1 {
			t.Errorf("%s: the exact log denies %.2f %%: the limit does not bite, or too much", all[i].name, 100*share)
		}
		if s.wrong > 0 || s.most > 1 {
			t.Errorf("%s: the exact log decides otherwise than itself: %+v", all[i].name, s)
		}
	}
	for _, f := range counterForms {
		if err := checkAccuracy(all, f); err != nil {
			t.Error(err)
		}
	}
	documented(t, accuracyTables(all))
}

// TestAccuracyCheckBites applies the same check to limiters that ignore their input.
func TestAccuracyCheckBites(t *testing.T) {
	all := accuracyTraffic(t)
	for _, f := range []form{allowAll, denyAll, coin} {
		err := checkAccuracy(all, f)
		if err == nil {
			t.Errorf("%s passes for a sliding counter", f.name)
			continue
		}
		for i := range all {
			if !strings.Contains(err.Error(), all[i].name) {
				t.Errorf("%s passes for a sliding counter on %s", f.name, all[i].name)
			}
		}
	}
}

// accuracyTables returns the tables of docs/algorithms.md.
func accuracyTables(all []traffic) string {
	var b strings.Builder
	row := func(cells ...string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	names := make([]string, 0, len(counterForms))
	for _, f := range counterForms {
		names = append(names, f.name)
	}
	b.WriteString("Wrong decisions, in per cent of all requests:\n\n")
	row(append([]string{"traffic", "limit", "requests", "allow everything", "fixed window"}, names...)...)
	row("---", "--:", "--:", "--:", "--:", "--:", "--:", "--:", "--:")
	most := make([][]string, 0, len(all))
	by := make([][]tally, 2+len(counterForms))
	for i := range by {
		by[i] = make([]tally, len(distances))
	}
	for i := range all {
		tr := &all[i]
		cells := []string{tr.name, fmt.Sprintf("%s/%s", thousands(tr.limit), period(tr.window)), thousands(int64(len(tr.arrivals)))}
		line := []string{tr.name}
		for j, f := range append([]form{allowAll, windowForm}, counterForms...) {
			s := tr.playBy(f, by[j])
			cells = append(cells, percent(s.wrong, s.requests))
			if j == 0 {
				line = append(line, percent(s.due, s.requests))
			} else {
				line = append(line, fmt.Sprintf("%s, %.2f", percent(s.denied, s.requests), s.most))
			}
		}
		row(cells...)
		most = append(most, line)
	}
	b.WriteString("\nDenied, in per cent, and the most that was allowed in any window, in limits (the log: 1.00):\n\n")
	row(append([]string{"traffic", "exact log", "fixed window"}, names...)...)
	row("---", "--:", "--:", "--:", "--:", "--:", "--:")
	for _, line := range most {
		row(line...)
	}
	b.WriteString("\nWrong decisions by the distance from the limit, in per cent of the requests at that distance:\n\n")
	row(append([]string{"requested within the window", "requests", "allow everything", "fixed window"}, names...)...)
	row("---", "--:", "--:", "--:", "--:", "--:", "--:", "--:")
	for d, end := range distances {
		name := fmt.Sprintf("up to %d %% of the limit", end)
		if d > 0 {
			name = fmt.Sprintf("%d to %d %%", distances[d-1], end)
		}
		if d == len(distances)-1 {
			name = fmt.Sprintf("above %d %%", distances[d-1])
		}
		cells := []string{name, thousands(int64(by[0][d].requests))}
		for j := range by {
			cells = append(cells, percent(by[j][d].wrong, by[j][d].requests))
		}
		row(cells...)
	}
	return b.String()
}

func thousands(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func period(window int64) string {
	switch window {
	case second:
		return "s"
	case minute:
		return "min"
	}
	return fmt.Sprintf("%d s", window/second)
}

// documented compares the tables with those of docs/algorithms.md.
func documented(t *testing.T, want string) {
	t.Helper()
	const path, begin, end = "../../docs/algorithms.md", "<!-- accuracy -->\n", "<!-- end of accuracy -->"
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, found := strings.Cut(string(b), begin)
	got, tail, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no place for the accuracy of the sliding counter", path)
	}
	if want = "\n" + want + "\n"; got == want {
		return
	}
	if !*update {
		t.Fatalf("%s has other figures than these: go test ./internal/step -run TestCounterAccuracy -update writes them\n%s", path, want)
	}
	if err := os.WriteFile(path, []byte(head+begin+want+end+tail), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestCounterWorstCase: a client that knows the windows gets the limit at the end of one, and again just before its
// first requests leave the sliding window. Sub-windows do not change that; only the log does.
func TestCounterWorstCase(t *testing.T) {
	const limit = 100
	tr := traffic{name: "at the edge", limit: limit, window: minute}
	for _, at := range []int64{epoch/minute*minute + minute - 2, epoch/minute*minute + 2*minute - 3} {
		for range 2 * limit {
			tr.arrivals = append(tr.arrivals, arrival{at, 0, 1})
		}
	}
	for _, f := range append([]form{windowForm}, counterForms...) {
		if s := tr.play(f); s.most != 2 {
			t.Errorf("%s: %.2f limits in a window, want 2", f.name, s.most)
		}
	}
	if s := tr.play(form{"exact log", product(step.Params{Kind: step.Log})}); s.most != 1 || s.wrong > 0 {
		t.Errorf("sliding log: %.2f limits in a window, want 1", s.most)
	}
}
