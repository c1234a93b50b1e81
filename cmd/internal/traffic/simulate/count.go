package simulate

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Columns is the maximum number of parts of a [Timeline].
const Columns = 60

// Timeline counts requests over time, in parts of equal length. The length doubles when there would be more than Columns
// parts.
type Timeline struct {
	Start time.Time
	Each  time.Duration // length of a part
	Parts []Part
}

// Part is one part of a [Timeline].
type Part struct {
	Requests int64 `json:"requests"`
	Denied   int64 `json:"denied"`
}

// at returns the part that contains now, which must not be before Start.
func (t *Timeline) at(now time.Time) *Part {
	if t.Each == 0 {
		t.Start, t.Each = now, time.Second
	}
	for now.Sub(t.Start) >= Columns*t.Each {
		t.Each *= 2
		for i := range t.Parts {
			p := t.Parts[i]
			if i%2 == 1 {
				t.Parts[i/2].Requests += p.Requests
				t.Parts[i/2].Denied += p.Denied
			} else {
				t.Parts[i/2] = p
			}
		}
		t.Parts = t.Parts[:(len(t.Parts)+1)/2]
	}
	i := int(now.Sub(t.Start) / t.Each)
	for len(t.Parts) <= i {
		t.Parts = append(t.Parts, Part{})
	}
	return &t.Parts[i]
}

// peak finds the second with the most requests.
type peak struct {
	second, now, max int64
}

func (p *peak) add(second int64) {
	if second != p.second {
		p.second, p.now = second, 0
	}
	p.now++
	p.max = max(p.max, p.now)
}

// keyCounter counts by key in bounded memory (Misra and Gries, 1982): a new key that does not fit reduces all counts by 1.
// A count may be too low by at most missed, and every key with a count above missed is present.
type keyCounter struct {
	counts map[string]*int64 // pointers, because assigning to the map would store the new key, which is valid during one request only
	missed int64
}

// maxKeys is the maximum number of keys counted per rule.
const maxKeys = 10_000

func (k *keyCounter) add(key string) {
	n := k.counts[key]
	switch {
	case n != nil:
		*n++
	case len(k.counts) >= maxKeys:
		k.shrink()
	default:
		if k.counts == nil {
			k.counts = make(map[string]*int64)
		}
		n = new(int64)
		*n = 1
		k.counts[strings.Clone(key)] = n
	}
}

// shrink reduces all counts by 1, in place of counting a key that does not fit.
func (k *keyCounter) shrink() {
	k.missed++
	for key, n := range k.counts {
		if *n--; *n == 0 {
			delete(k.counts, key)
		}
	}
}

type keyCount struct {
	key string
	n   int64
}

func (k *keyCounter) top(most int) []keyCount {
	var all []keyCount
	for key, n := range k.counts {
		all = append(all, keyCount{key, *n})
	}
	slices.SortFunc(all, func(a, b keyCount) int {
		return cmp.Or(cmp.Compare(b.n, a.n), strings.Compare(a.key, b.key))
	})
	return all[:min(most, len(all))]
}
