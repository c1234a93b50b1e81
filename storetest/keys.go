package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/sluiceproject/sluice"
)

// bucketName is the name of a rule and a key.
type bucketName struct{ rule, key string }

// oddKeys returns names that are problematic for some encoding, protocol or separator. All are different.
func oddKeys() []bucketName {
	kilo := strings.Repeat("k", 1024)
	names := []bucketName{
		{"r", ""},
		{"r", " "},
		{"r", "  "},
		{"r", "a"},
		{"r", "a "},
		{"r", " a"},
		{"r", "A"},
		{"r", "aa"},
		{"r", "aaa"},
		{"r", "{}"},
		{"r", "{a}"},
		{"r", "{a}b"},
		{"r", "{b}a"},
		{"r", "a\n"},
		{"r", "a\r\n"},
		{"r", "\n"},
		{"r", "\x00"},
		{"r", "a\x00"},
		{"r", "a\x00b"},
		{"r", "\xff"},
		{"r", "\xff\xfe"},
		{"r", "\xc3\x28"},
		{"r", "ä"},
		{"r", "a\u0308"},
		{"r", kilo},
		{"r", kilo + "x"},
		{"r", "x" + kilo},
		{"r", strings.Repeat("k", 64<<10)},
		{"r", strings.Repeat("k", 64<<10) + "x"},
		{"r", strings.Repeat("k", 250)},
		{"r", strings.Repeat("k", 251)},
		{"r", "0"},
		{"r", "00"},
		{"r", "1"},
		{"r", "-1"},
		{"r", "1.0"},
		{"r", "nil"},
		{"r", "*"},
		{"r", "?"},
		{"r", "\\"},
		{"r", `"`},
		{"r", "'"},
		{"r", "${x}"},
		{"r", "%s"},
		{"r", "%00"},
		{"r", "../a"},
		{"r", "a/b"},
		{"r", "a/b/"},
	}
	seen := map[bucketName]bool{}
	return slices.DeleteFunc(append(names, joinedKeys()...), func(n bucketName) bool {
		twice := seen[n]
		seen[n] = true
		return twice
	})
}

// joinedKeys returns pairs that would be equal if rule and key were joined.
func joinedKeys() (names []bucketName) {
	for _, sep := range []string{":", "|", "/", ".", "_", "-", " ", "\n", "\x00", ",", "}{", "=", "&"} {
		names = append(names, bucketName{"a" + sep + "b", "c"}, bucketName{"a", "b" + sep + "c"}, bucketName{"a", "b"})
		names = append(names, bucketName{"a" + sep, "c"}, bucketName{"a", sep + "c"})
	}
	// Equal if lengths were written as digits before the bytes.
	return append(names, bucketName{"l", "1:a"}, bucketName{"l1", ":a"}, bucketName{"l1:", "a"}, bucketName{"1", "1:a"})
}

// oddNames checks that each of the odd names has its own quota, regardless of the usage of the others.
func oddNames(o *opener) error {
	p := o.probe()
	names := oddKeys()
	rules := map[string]*sluice.Rule{}
	for _, n := range names {
		if rules[n.rule] == nil {
			rules[n.rule] = newRule(n.rule, sluice.Per(5, long).WithAlgorithm(sluice.FixedWindow).WithAlign(sluice.AlignFirstRequest))
		}
	}
	// Each has a different usage, so that two that share a bucket are detected from both sides.
	for round := range 2 {
		for i, n := range names {
			share := int64(1 + i%2)
			d := p.take(rules[n.rule], n.key, share)
			if want := 5 - share*int64(round+1); !d.Allowed || d.Remaining != want {
				return fmt.Errorf("rule %.40q, key %.40q: %s, want remaining=%d: the key shares a bucket with another one", n.rule, n.key, describe(&d), want)
			}
		}
	}
	for i, n := range names {
		left := 5 - 2*int64(1+i%2)
		p.expect(fmt.Sprintf("rule %.40q, key %.40q: admitted of the remaining quota", n.rule, n.key), p.admitted(rules[n.rule], n.key, 9, 1), left)
	}
	return p.fault()
}

// isolated runs a history of many keys, and the part of one key alone. The decisions for that key must be the same.
func isolated(o *opener) error {
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(seed, 0x1507))
		var rules []*sluice.Rule
		for i := range algorithms {
			rules = append(rules, algorithms[i].rule(algorithms[i].name, 1+rng.Int64N(8), time.Second))
		}
		const watched = "b"
		var with, without []sluice.Decision
		all, alone := o.probe(), o.probe()
		for range 600 {
			step := time.Duration(rng.Int64N(100_000)) * time.Microsecond
			all.clock.Advance(step)
			alone.clock.Advance(step)
			rule, key, cost := rules[rng.IntN(len(rules))], []string{"a", "b", "ab", "ba", ""}[rng.IntN(5)], rng.Int64N(4)
			d := all.take(rule, key, cost)
			if key == watched {
				with = append(with, d)
				without = append(without, alone.take(rule, key, cost))
			}
		}
		for _, p := range []*probe{all, alone} {
			if err := p.fault(); err != nil {
				return err
			}
		}
		for i := range with {
			if with[i] != without[i] {
				return fmt.Errorf("seed %d: take %d of key %q\nwith others %s\n     alone %s", seed, i, watched, describe(&with[i]), describe(&without[i]))
			}
		}
	}
	return nil
}

// forgets lets all state expire: a store with a method Len must have no keys left, and each key must be fully reset.
func forgets(o *opener) error {
	p := o.probe()
	counted, counts := p.store.(interface{ Len() int })
	var longest time.Duration
	var rules []*sluice.Rule
	for i, window := range []time.Duration{time.Millisecond, 500 * time.Millisecond, time.Second, time.Minute, time.Hour} {
		for j := range algorithms {
			if algorithms[j].name == "sliding_counter_subwindows" && i == 0 {
				continue
			}
			rules = append(rules, algorithms[j].rule(fmt.Sprintf("%s %v", algorithms[j].name, window), 3, window))
		}
	}
	for round := range 4 { // take, deny, refund, take
		for _, r := range rules {
			d := p.take(r, "k", int64(1+round%2))
			if round == 2 && d.Allowed {
				d = p.apply(sluice.Take{Rule: r, Key: "k", Cost: -d.Granted, Receipt: d.Receipt})[0]
			}
			longest = max(longest, d.ResetAfter)
		}
	}
	if counts && counted.Len() == 0 {
		p.failf("Len is 0 after the use of %d keys", len(rules))
	}
	p.clock.Advance(longest)
	if counts {
		p.expect("Len after all state has expired", int64(counted.Len()), 0)
	}
	for _, r := range rules {
		if d := p.peek(r, "k"); d.Remaining != d.Limit || d.ResetAfter != 0 {
			p.failf("%v: not fully reset after all state has expired: %s", r.Limit, describe(&d))
		}
	}
	return p.fault()
}

// keepsUntil uses all of a limit and takes 1 µs before each time at which quota is replenished: an expiry must not
// grant quota early.
func keepsUntil(o *opener) error {
	for _, window := range []time.Duration{2 * time.Millisecond, 300 * time.Millisecond, 999 * time.Millisecond, 1500 * time.Millisecond, 90 * time.Second} {
		for _, a := range algorithms {
			if a.name == "sliding_counter_subwindows" && window < 5*time.Millisecond {
				continue
			}
			p := o.probe()
			rule := a.rule("keeps", 4, window)
			d := p.take(rule, "k", 4)
			p.clock.Advance(d.ResetAfter - time.Microsecond)
			if early := p.take(rule, "k", 4); early.Allowed && a.name != "sliding_counter" && a.name != "sliding_counter_subwindows" {
				return fmt.Errorf("%v: the whole limit was allowed again after %v, 1 µs before ResetAfter", rule.Limit, d.ResetAfter)
			}
			if err := p.fault(); err != nil {
				return err
			}
		}
	}
	return nil
}
