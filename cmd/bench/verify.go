package main

import "fmt"

// A counted contender can tell how many keys it knows.
type counted interface{ live() int }

// census checks that a contender which can tell knows as many keys as it was shown.
func census(l limiter, keys int) error {
	if c, ok := l.(counted); ok && c.live() != keys {
		return failf("it knows %d keys and was shown %d", c.live(), keys)
	}
	return nil
}

// slack is how far off a contender's count may be: one, for a unit won back during the run.
const slack = 1

// verify spends what is left of some keys until they are denied. That it takes as much as it should proves that the
// contender limits at all, and that it remembered every hit of the run: a store that forgot its keys in between would
// have been measured at something else. Of a key's hits, old ones lie in a window that counts for less and less.
func (p *plan) verify(l limiter, keys []string, old int) error {
	for _, k := range p.samples() {
		least := p.spec.burst - int64(p.hits[k])
		most := least + min(int64(old), int64(p.hits[k]))
		if !p.allow {
			least, most = 0, 0 // exhausted by the fill
		}
		if err := drain(l, keys[k], least, most, p.spec.burst); err != nil {
			return err
		}
	}
	return nil
}

// drain spends on a key until it is denied, and checks how much that was.
func drain(l limiter, key string, least, most, burst int64) error {
	least, most = max(0, least-slack), most+slack
	for n := int64(0); n <= most; n++ {
		if l.allow(key) {
			continue
		}
		if n < least {
			return failf("%s was denied with %d left to spend, instead of at least %d", key, n, least)
		}
		return nil
	}
	return failf("%s was not denied after its last %d of %d: the state was lost, or nothing is limited", key, most, burst)
}

// limits checks on a fresh key that the contender stops at its limit.
func limits(l limiter, key string, burst int64) error {
	if err := drain(l, key, burst, burst, burst); err != nil {
		return fmt.Errorf("fresh key: %w", err)
	}
	return nil
}
