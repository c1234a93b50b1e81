package main

import "fmt"

// A counted contender can report its number of keys.
type counted interface{ live() int }

// census checks that a contender that can report it has as many keys as were used.
func census(l limiter, keys int) error {
	if c, ok := l.(counted); ok && c.live() != keys {
		return failf("it has %d keys, want %d", c.live(), keys)
	}
	return nil
}

// slack is the permitted error of a contender's count: one, for a unit refilled during the run.
const slack = 1

// verify uses up the remaining quota of some keys until they are denied. That the quota is as expected proves that the
// contender limits at all, and that it counted every hit of the run: a store that lost its keys in between was not
// measured correctly. old is the number of hits that are in an expiring window.
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

// drain takes from a key until it is denied, and checks how much that was.
func drain(l limiter, key string, least, most, burst int64) error {
	least, most = max(0, least-slack), most+slack
	for n := int64(0); n <= most; n++ {
		if l.allow(key) {
			continue
		}
		if n < least {
			return failf("%s was denied after %d more hits, want at least %d", key, n, least)
		}
		return nil
	}
	return failf("%s was not denied after its last %d of %d: the state was lost, or there is no limit", key, most, burst)
}

// limits checks on a new key that the contender denies at its limit.
func limits(l limiter, key string, burst int64) error {
	if err := drain(l, key, burst, burst, burst); err != nil {
		return fmt.Errorf("fresh key: %w", err)
	}
	return nil
}
