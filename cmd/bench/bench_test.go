package main

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func small(burst int64) spec {
	return spec{burst: burst, every: 10 * time.Minute, slide: longWindow, keys: 1000}
}

func TestEveryContenderLimits(t *testing.T) {
	for _, c := range contenders() {
		if c.role == roleEmpty || c.runs(ruleMatch) { // these do not limit
			continue
		}
		if c.open == nil && c.wrap == nil {
			continue // see the tests with Redis; services are checked in each run
		}
		if c.wrap != nil {
			if err := c.denies(); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			l, err := c.open(small(50))
			if err != nil {
				t.Fatal(err)
			}
			if err := limits(l, "one", 50); err != nil {
				t.Error(err)
			}
			if c.name == "failsafe" {
				return // it does not support keys
			}
			if err := limits(l, "another", 50); err != nil {
				t.Error("keys share a limit:", err)
			}
		})
	}
}

func TestEveryContenderPassesTheChecks(t *testing.T) {
	for _, c := range contenders() {
		if c.role == roleEmpty || c.slides {
			continue // a sliding counter would have to wait for its second window
		}
		for _, s := range []scenario{
			{name: hot, keys: 1, ops: 3000},
			{name: uniform, keys: 500, ops: 1200},
			{name: zipf, keys: 500, ops: 1200},
			{name: denied, keys: 500, ops: 1200},
		} {
			if !c.runs(s.name) {
				continue
			}
			t.Run(at(s.name, c.name), func(t *testing.T) {
				res, err := measure(&c, &s, job{Seed: 1, Procs: []int{1, 2}})
				if err != nil {
					t.Fatal(err)
				}
				if want := min(s.keys, s.ops); s.name != zipf && res.Phases[1].Distinct != want {
					t.Errorf("%d distinct keys, want %d", res.Phases[1].Distinct, want)
				}
			})
		}
	}
}

func TestRulesAreMatched(t *testing.T) {
	res, err := measureRules(&scenario{name: ruleMatch, ops: 2200})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range res.Rules {
		if w.Few <= 0 || w.Many <= 0 || w.Allocs > 0.05 {
			t.Errorf("%+v", w)
		}
	}
}

func TestFloorRefills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFloor(small(3))
		for step, want := range []struct {
			wait    time.Duration
			allowed int
		}{{0, 3}, {9 * time.Minute, 0}, {time.Minute, 1}, {25 * time.Minute, 2}, {100 * time.Hour, 3}} {
			<-time.After(want.wait)
			got := 0
			for f.allow("key") {
				got++
			}
			if got != want.allowed {
				t.Errorf("step %d: %d allowed, want %d", step, got, want.allowed)
			}
		}
	})
}

func TestFloorIsExactWhenContended(t *testing.T) {
	f := newFloor(small(1000))
	var allowed atomic.Int64
	var done sync.WaitGroup
	for range 8 {
		done.Go(func() {
			for range 500 {
				if f.allow("key") {
					allowed.Add(1)
				}
			}
		})
	}
	done.Wait()
	if allowed.Load() != 1000 {
		t.Errorf("%d allowed, want 1000", allowed.Load())
	}
}

func TestFloorKeepsKeysApart(t *testing.T) {
	const n = 200_000
	s := small(2)
	s.keys = n
	f := newFloor(s)
	for range 2 {
		for i := range n {
			if !f.allow(keyName(i)) {
				t.Fatalf("%s was denied", keyName(i))
			}
		}
	}
	for i := range n {
		if f.allow(keyName(i)) {
			t.Fatalf("%s was allowed a third time", keyName(i))
		}
	}
}

func TestOrders(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	names := shuffled(r, 1000, 1000)
	seen := map[uint32]bool{}
	for _, k := range names {
		seen[k] = true
	}
	if len(seen) != 1000 {
		t.Errorf("a round of 1000 keys has %d different ones", len(seen))
	}
	count := map[uint32]int{}
	for _, k := range zipfian(r, names, 100_000) {
		count[k]++
	}
	if first, tenth := count[names[0]], count[names[9]]; first < 5*tenth || tenth == 0 {
		t.Errorf("the first key has %d hits and the tenth %d: not Zipf's law", first, tenth)
	}
	if _, err := makeKeys(12_345); err != nil {
		t.Error(err)
	}
	if n, err := distinct([]string{keyName(7), keyName(7), keyName(9_999_999)}); n != 2 || err != nil {
		t.Errorf("%d distinct keys (%v), want 2", n, err)
	}
	if got := keyName(1234); got != "user:0001234" {
		t.Errorf("keyName is %q", got)
	}
}

type limiterFunc func(key string) bool

func (f limiterFunc) allow(key string) bool { return f(key) }

// forgetful returns a limiter that loses its state after every so many calls.
func forgetful(after int) func(spec) (limiter, error) {
	return func(s spec) (limiter, error) {
		f, n := newFloor(s), 0
		return limiterFunc(func(key string) bool {
			if n++; n%after == 0 {
				f = newFloor(s)
			}
			return f.allow(key)
		}), nil
	}
}

func TestChecksCatchCheats(t *testing.T) {
	always := func(answer bool) func(spec) (limiter, error) {
		return func(spec) (limiter, error) { return limiterFunc(func(string) bool { return answer }), nil }
	}
	for name, open := range map[string]func(spec) (limiter, error){
		"allows everything": always(true), "denies everything": always(false), "forgets": forgetful(1000),
	} {
		for _, scen := range []string{hot, uniform, denied} {
			s := scenario{name: scen, keys: 500, ops: 1200}
			if scen == hot {
				s.keys = 1
			}
			_, err := measure(&contender{open: open}, &s, job{Seed: 1, Procs: []int{1}})
			if !errors.Is(err, errCheck) {
				t.Errorf("a limiter that %s passed %s: %v", name, scen, err)
			}
		}
	}
}

func TestBars(t *testing.T) {
	r := &report{CPUs: 2, Timings: []timing{
		{Scenario: uniform, Procs: 2, Rows: []row{
			{Contender: "floor", Ns: 100, role: roleFloor},
			{Contender: "sluice", Ns: 120, role: roleOurs},
			{Contender: "slow", Ns: 900, role: rolePeer},
			{Contender: "fast", Ns: 240, role: rolePeer},
		}},
		{Scenario: uniform, Procs: 1, Rows: []row{
			{Contender: "floor", Ns: 400, role: roleFloor, Disturbed: true}, {Contender: "sluice", Ns: 220, role: roleOurs},
		}},
	}}
	want := map[string]string{
		"1M keys uniform, all cpus":                   "1.20× floor pass",
		"1M keys uniform, all cpus, vs the best peer": "2.00× (fast) miss",
		"1M keys uniform, 1 cpu":                      "0.55× floor disturbed",
		"hot key, 1 cpu, token bucket":                " not measured",
		"allocations per decision":                    "0 pass",
	}
	for _, b := range r.bars() {
		if w, ok := want[b.Name]; ok && b.Got+" "+b.Verdict != w {
			t.Errorf("%s: %q, want %q", b.Name, b.Got+" "+b.Verdict, w)
		}
		delete(want, b.Name)
	}
	if len(want) > 0 {
		t.Errorf("no such bars: %v", want)
	}
}

func TestUsage(t *testing.T) {
	for args, want := range map[string]string{
		"-o xml": "use text or json", "-reps -1": "at least 1", "extra": "unexpected argument",
		"-only nothing": "no scenario", "-contenders nobody": "no contender",
	} {
		var stderr strings.Builder
		err := run(context.Background(), strings.Fields(args), io.Discard, &stderr)
		if err == nil || !strings.Contains(stderr.String()+err.Error(), want) {
			t.Errorf("bench %s: %v, %q: want %q", args, err, stderr.String(), want)
		}
	}
}

// A replay is checked: each line is counted by each rule, and a log that lacks lines is invalid.
func TestSimulate(t *testing.T) {
	res, err := measureSimulate(&scenario{name: simulated, keys: 1000, ops: 2000}, job{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	if s := res.Simulate; s.Lines != 2000 || s.Seconds <= 0 || s.Resident <= 0 || s.Large < 1<<20 {
		t.Errorf("%+v", s)
	}
	short := &logText{rng: rand.New(rand.NewPCG(1, 0)), keys: 1000, lines: 1999}
	if err := replay(short, 2000); !errors.Is(err, errCheck) {
		t.Errorf("a log that lacks a line: %v", err)
	}
}
