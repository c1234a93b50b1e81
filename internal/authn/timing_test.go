package authn

import (
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// welch is Welch's t of two samples: beyond 4.5 it is next to impossible that they are of one distribution.
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

// timing compares how long two requests take, in random order. The slowest tenth is left out, which is when something else
// ran.
func timing(ask func(*http.Request), first, second *http.Request, n int) float64 {
	rng := rand.New(rand.NewPCG(1, 2))
	var times [2][]float64
	requests := [2]*http.Request{first, second}
	for range n {
		class := rng.IntN(2)
		r := requests[class]
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

// A key that is nearly right costs the time of any other. On a machine with others on it times say little, so that they
// are held to it only with SLUICE_SOAK.
func TestKeysTakeAsLong(t *testing.T) {
	right := "slk_" + strings.Repeat("abcdefgh", 6) + "abcd"
	k := keysOf(t, KeysConfig{}, "- {user: bob, hash: '"+hashed(right)+"'}\n")
	soak := os.Getenv("SLUICE_SOAK") != ""
	n := 2_000
	if soak {
		n = 1_000_000
	}
	near, far := request("X-Api-Key", right[:len(right)-1]+"x"), request("X-Api-Key", "x"+right[1:])
	got := timing(func(r *http.Request) { _, _ = k.Authenticate(r) }, near, far, n)
	t.Logf("nearly right and wrong: t is %.2f", got)
	if soak && math.Abs(got) > 4.5 {
		t.Error("the time tells them apart")
	}
	leaky := func(r *http.Request) { // as one compares who does not think of it
		shown := r.Header.Get("X-Api-Key")
		for i := range len(right) {
			if shown[i] != right[i] {
				return
			}
		}
	}
	if got := timing(leaky, near, far, n); soak && math.Abs(got) < 4.5 {
		t.Errorf("a comparison that ends early is not noticed: t is %.2f", got)
	}
}
