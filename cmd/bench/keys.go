package main

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"strings"
)

const keyLen = len("user:0001234")

// keyName returns the key with this number, as a new string.
func keyName(i int) string {
	var b [keyLen]byte
	copy(b[:], "user:0000000")
	for at := keyLen - 1; i > 0; at-- {
		b[at] = byte('0' + i%10)
		i /= 10
	}
	return string(b[:])
}

// makeKeys returns n distinct keys.
func makeKeys(n int) ([]string, error) {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = keyName(i)
	}
	if found, err := distinct(keys); err != nil || found != n {
		return nil, fmt.Errorf("%d distinct keys, want %d: %v", found, n, err)
	}
	return keys, nil
}

// distinct returns the number of different keys in a list, parsed from the very strings that will be used.
func distinct(keys []string) (int, error) {
	var seen [10_000_000 / 64]uint64
	for _, key := range keys {
		number, ok := strings.CutPrefix(key, "user:")
		ok = ok && len(key) == keyLen
		i := 0
		for _, digit := range []byte(number) {
			ok = ok && digit >= '0' && digit <= '9'
			i = 10*i + int(digit-'0')
		}
		if !ok {
			return 0, fmt.Errorf("key %q is not of the form user:0001234", key)
		}
		seen[i/64] |= 1 << (i % 64)
	}
	n := 0
	for _, word := range seen {
		n += bits.OnesCount64(word)
	}
	return n, nil
}

// shuffled returns a random order of n hits over the keys in which no key repeats before all have occurred.
func shuffled(r *rand.Rand, keys, n int) []uint32 {
	order := make([]uint32, 0, n)
	round := make([]uint32, keys)
	for i := range round {
		round[i] = uint32(i)
	}
	for len(order) < n {
		r.Shuffle(keys, func(i, j int) { round[i], round[j] = round[j], round[i] })
		order = append(order, round[:min(keys, n-len(order))]...)
	}
	return order
}

// zipfExponent gives the most popular of a million keys 1/8 of all hits.
const zipfExponent = 1.1

// zipfian returns n hits whose keys follow Zipf's law. The popular keys are random, because neighbours in popularity
// must not be neighbours in memory.
func zipfian(r *rand.Rand, names []uint32, n int) []uint32 {
	z := rand.NewZipf(r, zipfExponent, 1, uint64(len(names)-1))
	order := make([]uint32, n)
	for i := range order {
		order[i] = names[z.Uint64()]
	}
	return order
}
