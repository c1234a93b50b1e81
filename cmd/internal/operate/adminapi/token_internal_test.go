package adminapi

import (
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// welch returns Welch's t of two samples. Above 4.5 they almost certainly have different distributions.
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

// timing compares the duration of check for two strings, in random order. It drops the slowest 10 %, in which other
// processes ran.
func timing(check func(string) bool, first, second string, n int) float64 {
	rng := rand.New(rand.NewPCG(1, 2))
	var times [2][]float64
	texts := [2]string{strings.Clone(first), strings.Clone(second)} // both on the heap
	for range n {
		class := rng.IntN(2)
		text := texts[class]
		began := time.Now()
		for range 8 {
			check(text)
		}
		times[class] = append(times[class], float64(time.Since(began)))
	}
	all := slices.Sorted(slices.Values(slices.Concat(times[0], times[1])))
	slowest := all[len(all)*9/10]
	for i := range times {
		times[i] = slices.DeleteFunc(times[i], func(f float64) bool { return f > slowest })
	}
	return welch(times[0], times[1])
}

// A wrong token takes the same time as the right one, and a nearly right one the same as any other. On a shared machine
// the measurement is noisy, so the result is checked only with SLUICE_SOAK.
func TestTokenTakesAsLong(t *testing.T) {
	if got := welch([]float64{1, 2, 3}, []float64{4, 5, 6}); math.Abs(got+3.674) > 0.001 {
		t.Errorf("t is %v", got)
	}
	path := filepath.Join(t.TempDir(), "token")
	right := "0123456789abcdef0123456789abcdef"
	if err := os.WriteFile(path, []byte(right), 0o600); err != nil {
		t.Fatal(err)
	}
	token, err := ReadToken("admin tokens", path)
	if err != nil {
		t.Fatal(err)
	}
	soak := os.Getenv("SLUICE_SOAK") != ""
	n := 2_000
	if soak {
		n = 1_000_000
	}
	near, far := right[:31]+"0", "f"+right[1:]
	for name, pair := range map[string][2]string{"right and wrong": {right, far}, "nearly right and wrong": {near, far}} {
		got := timing(token.is, pair[0], pair[1], n)
		t.Logf("%s: t is %.2f", name, got)
		if soak && math.Abs(got) > 4.5 {
			t.Errorf("%s: the times differ", name)
		}
	}
	leaky := func(s string) bool { // a comparison that stops at the first difference
		for i := range len(right) {
			if s[i] != right[i] {
				return false
			}
		}
		return true
	}
	if got := timing(leaky, near, far, n); soak && math.Abs(got) < 4.5 {
		t.Errorf("a comparison that ends early is not detected: t is %.2f", got)
	}
}

// The token file is read again when it changes. If it is invalid, the last valid token stays in use.
func TestTokenIsReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("the-first-token-of-ours")
	token, err := ReadToken("admin tokens", path)
	if err != nil {
		t.Fatal(err)
	}
	expect := func(shown string, want bool) {
		t.Helper()
		if token.is(shown) != want {
			t.Errorf("%s is right: %v, want %v", shown, !want, want)
		}
	}
	var lines strings.Builder
	log := slog.New(slog.NewTextHandler(&lines, nil))
	// look reloads the file twice. It must log one line, or none.
	look := func(want string) {
		t.Helper()
		lines.Reset()
		token.Reload(log)
		token.Reload(log)
		if got := lines.String(); !strings.Contains(got, want) || strings.Count(got, "\n") != min(1, len(want)) {
			t.Errorf("logged %q, want one line with %q", got, want)
		}
	}
	look("")
	write("the-second-token-of-ours-is-longer")
	expect("the-first-token-of-ours", true) // until the next check of the file
	look(`level=INFO msg="admin tokens changed" path=` + path)
	expect("the-first-token-of-ours", false)
	expect("the-second-token-of-ours-is-longer", true)
	const invalid = `level=ERROR msg="admin tokens invalid: last valid content stays in use" error=`
	for _, bad := range []string{"", "short"} {
		write(bad)
		look(invalid)
		expect("the-second-token-of-ours-is-longer", true)
		expect(bad, false)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	look(invalid)
	expect("the-second-token-of-ours-is-longer", true)
	expect("", false)
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	look(invalid)
	expect("the-second-token-of-ours-is-longer", true)
}

func TestSampler(t *testing.T) {
	var s sampler
	at := time.Unix(1000, 0)
	passed := 0
	for range 100 {
		if _, ok := s.pass(at); ok {
			passed++
		}
	}
	dropped, ok := s.pass(at.Add(time.Second))
	if passed != rejectionsPerSecond || !ok || dropped != 100-rejectionsPerSecond {
		t.Errorf("%d passed, then %d are reported as dropped", passed, dropped)
	}
	if dropped, _ = s.pass(at.Add(2 * time.Second)); dropped != 0 {
		t.Errorf("%d are reported as dropped twice", dropped)
	}
}
