package loadgen_test

import (
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/loadgen"
)

func TestPatterns(t *testing.T) {
	for _, test := range []struct {
		keys  int64
		texts []string
		count int64
		want  map[int64]string // by key: all texts, joined
	}{
		{0, []string{"plain"}, 1, map[int64]string{0: "plain"}},
		{0, []string{"10.0.0.{1..100}"}, 100, map[int64]string{0: "10.0.0.1", 99: "10.0.0.100"}},
		{0, []string{"{08..11}"}, 4, map[int64]string{0: "08", 1: "09", 2: "10", 3: "11"}},
		{0, []string{"{1..3}.{1..2}"}, 6, map[int64]string{0: "1.1", 1: "2.1", 2: "3.1", 3: "1.2", 5: "3.2"}},
		{0, []string{"a{0..1}", "b{0..1}"}, 4, map[int64]string{0: "a0 b0", 1: "a1 b0", 2: "a0 b1", 3: "a1 b1"}},
		{7, []string{"x{key}y{key}"}, 7, map[int64]string{0: "x0y0", 6: "x6y6"}},
		{2, []string{"{1..3}", "{key}", "{key}"}, 6, map[int64]string{0: "1 0 0", 2: "3 0 0", 3: "1 1 1", 5: "3 1 1"}},
		{0, []string{`{"text":"{a..b}","n":{1..2}}`}, 2, map[int64]string{1: `{"text":"{a..b}","n":2}`}},
	} {
		p := loadgen.Patterns{Keys: test.keys}
		var patterns []loadgen.Pattern
		for _, text := range test.texts {
			parsed, err := p.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			patterns = append(patterns, parsed)
		}
		if p.Count() != test.count || p.UsesKey() != (test.keys > 0) {
			t.Errorf("%q: %d keys, want %d", test.texts, p.Count(), test.count)
		}
		seen := map[string]bool{}
		for key := range test.count {
			var all []string
			for _, pattern := range patterns {
				all = append(all, pattern.Text(key))
			}
			got := strings.Join(all, " ")
			if want, ok := test.want[key]; ok && got != want {
				t.Errorf("%q of key %d: %q, want %q", test.texts, key, got, want)
			}
			seen[got] = true
		}
		if int64(len(seen)) != test.count {
			t.Errorf("%q: %d different texts, want %d", test.texts, len(seen), test.count)
		}
	}
}

func TestPatternFaults(t *testing.T) {
	for text, want := range map[string]string{
		"{key}":                     "--keys 1000",
		"{9..1}":                    "the smaller number first",
		"{1..1000000}-{1..1000000}": "the product of all ranges is at most 1000000000",
		"{0..999999999999999999}":   "the product of all ranges is at most 1000000000",
	} {
		p := loadgen.Patterns{}
		if _, err := p.Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
