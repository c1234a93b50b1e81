package authn

import (
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// welch returns Welch's t of two samples: beyond 4.5 it is almost certain that their distributions differ.
func welch(a, b []float64) float64 {
	mean := func(x []float64) (m, v float64) {
		for _, f := range x {
			m += f
		}
		m /= float64(len(x))
		for _, f := range x {
			v += (f - m) * (f - m)
		}
		return m, v / float64(len(x)-1)
	}
	ma, va := mean(a)
	mb, vb := mean(b)
	return (ma - mb) / math.Sqrt(va/float64(len(a))+vb/float64(len(b)))
}

// timing compares the time of two kinds of keys, in random order and with one request, so that memory is the same. The slowest
// 10 % are omitted, because other processes ran then.
func timing(ask func(*http.Request), kinds [2][]string, n int) float64 {
	rng := rand.New(rand.NewPCG(1, 2))
	var times [2][]float64
	text := make([]byte, len(kinds[0][0]))
	r := request("X-Api-Key", "")
	for range n {
		class := rng.IntN(2)
		copy(text, kinds[class][rng.IntN(len(kinds[class]))])
		r.Header["X-Api-Key"][0] = string(text)
		began := time.Now()
		for range 8 {
			ask(r)
		}
		times[class] = append(times[class], float64(time.Since(began)))
	}
	all := slices.Sorted(slices.Values(slices.Concat(times[0], times[1])))
	most := all[len(all)*9/10]
	for i := range times {
		times[i] = slices.DeleteFunc(times[i], func(f float64) bool { return f > most })
	}
	return welch(times[0], times[1])
}

// A nearly right key takes as much time as any other. Times on shared machines are noisy, so a difference fails the test only with
// SLUICE_SOAK.
func TestKeysTakeAsLong(t *testing.T) {
	right := "slk_" + strings.Repeat("abcdefgh", 6) + "abcd"
	k := keysOf(t, KeysConfig{}, "- {user: bob, hash: '"+hashed(right)+"'}\n")
	soak := os.Getenv("SLUICE_SOAK") != ""
	n := 2_000
	if soak {
		n = 1_000_000
	}
	// Many keys of each kind, because the lookup time of one digest depends on its random place in the map.
	var kinds [2][]string
	for i := range 1024 {
		end := strconv.FormatInt(int64(32*32+i), 32)
		kinds[0] = append(kinds[0], right[:len(right)-3]+end)
		kinds[1] = append(kinds[1], end+right[3:])
	}
	got := timing(func(r *http.Request) { _, _ = k.Authenticate(r) }, kinds, n)
	t.Logf("nearly right and wrong: t is %.2f", got)
	if soak && math.Abs(got) > 4.5 {
		t.Error("the time tells them apart")
	}
	leaky := func(r *http.Request) { // naive comparison, byte by byte
		shown := r.Header.Get("X-Api-Key")
		for i := range len(right) {
			if shown[i] != right[i] {
				return
			}
		}
	}
	if got := timing(leaky, kinds, n); soak && math.Abs(got) < 4.5 {
		t.Errorf("a comparison that ends early is not noticed: t is %.2f", got)
	}
}
