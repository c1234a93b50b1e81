package admission

import (
	"strings"
	"testing"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/bounds"
)

// For any value in a response, the cost is between 0 and the maximum, and larger values are counted as a reached bound.
func TestParseCost(t *testing.T) {
	for _, tt := range []struct {
		text    string
		want    int64
		ok      bool
		reached bool
	}{
		{"7", 7, true, false},
		{" \"7\" ", 7, true, false},
		{"1.5", 2, true, false},
		{"-3", 0, true, false},
		{"-1e400", 0, true, false},
		{"0", 0, true, false},
		{"1125899906842624", sluice.MaxCost, true, false},
		{"1125899906842625", sluice.MaxCost, true, true},
		{"100000000000000000000", sluice.MaxCost, true, true},
		{"1e20", sluice.MaxCost, true, true},
		{"1e309", sluice.MaxCost, true, true},
		{strings.Repeat("9", 1<<20), sluice.MaxCost, true, true},
		{"NaN", 0, false, false},
		{"Inf", 0, false, false},
		{"-Infinity", 0, false, false},
		{"", 0, false, false},
		{"many", 0, false, false},
		{"1,000", 0, false, false},
		{"null", 0, false, false},
		{`{"a":1}`, 0, false, false},
	} {
		before := bounds.SettledCost.Count()
		got, ok := parseCost(tt.text)
		reached := bounds.SettledCost.Count() > before
		if got != tt.want || ok != tt.ok || reached != tt.reached {
			t.Errorf("%.40q: got %d, %v, bound reached %v; want %d, %v, %v", tt.text, got, ok, reached, tt.want, tt.ok, tt.reached)
		}
	}
}

func FuzzParseCost(f *testing.F) {
	for _, text := range []string{"7", "-3", "1e309", "NaN", `"5"`, "0x1p70", "1_000", "١"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if n, ok := parseCost(text); n < 0 || n > sluice.MaxCost || !ok && n != 0 {
			t.Errorf("%q: %d, %v", text, n, ok)
		}
	})
}
