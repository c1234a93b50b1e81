package storetest

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the reference's results into testdata/*.txt")

// TestTranscripts runs the transcripts on the reference, an independent and slow implementation of the algorithms. With
// -update it rewrites them.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			script, err := parseTranscript(file, string(text))
			if err != nil {
				t.Fatal(err)
			}
			clock := NewClock()
			w := newTeller(NewReference(clock), clock, false)
			if !*update {
				if err := script.run(w); err != nil {
					t.Error(err)
				}
				return
			}
			fresh, err := script.rewrite(w)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(fresh), 0o644); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestParseTranscript checks that syntax errors are reported with their line.
func TestParseTranscript(t *testing.T) {
	const limit = "limit token_bucket 10/s\n"
	tests := []struct{ text, want string }{
		{"limits token_bucket 10/s", `f:1: "limits token_bucket 10/s" is neither`},
		{"limit token_bucket", "f:1: a limit needs an algorithm"},
		{"limit tokens 10/s", `f:1: sluice: unknown algorithm "tokens"`},
		{"limit token_bucket 10", `f:1: sluice: limit "10": there is no slash`},
		{"limit token_bucket 10/s burst=x", "f:1: burst: strconv.ParseInt"},
		{"limit token_bucket 10/s burst=1 burst=2", "f:1: burst is given twice"},
		{"limit token_bucket 10/s colour=red", "f:1: colour: not an option of a limit"},
		{"limit token_bucket 10/s refill=daily", `f:1: refill: unknown value "daily"`},
		{"limit fixed_window 10/s calendar=century", `f:1: calendar: unknown value "century"`},
		{"limit fixed_window 10/s zone=Nowhere/Land", "f:1: zone: unknown time zone"},
		{"limit fixed_window 10/s shadow=no", `f:1: shadow: unknown value "no"`},
		{"limit sliding_window_log 10/s burst=5", `f:1: rule "r": sluice: limit: Burst`},
		{limit + limit, `f:2: rule "r": use limit for a new rule`},
		{"change token_bucket 10/s", `f:1: rule "r": use limit for a new rule and change for an existing one`},
		{limit + "at 0s take k", "f:2: the last calls have no line of ----"},
		{limit + "at 0s take k\n\n----", "f:3: calls must be followed by a line of ----"},
		{limit + "at soon take k\n----", `f:2: "soon" is not a time`},
		{limit + "at 0s\n----", "f:2: a call has the form"},
		{limit + "at 0s grab k\n----", `f:2: unknown verb "grab"`},
		{limit + "at 0s take\n----", "f:2: take needs"},
		{limit + "at 0s take k price=1\n----", "f:2: price: not an option of a take"},
		{limit + "at 0s peek k cost=1\n----", "f:2: cost: not an option of a peek"},
		{limit + "at 0s take k rule=other\n----", "f:2: rule: no limit with this name above"},
		{limit + "at 0s take k n=0\n----", "f:2: n: not between 1 and 100000"},
		{limit + "at 0s take k n=2 as=x\n----", "f:2: n= requires a single take"},
		{limit + "at 0s take k as=x\nat 0s take k as=x\n----", `f:3: two takes have the label "x"`},
		{limit + "at 0s giveback x\n----", `f:2: no earlier take has the label "x"`},
		{limit + "at 0s take k as=x\nat 0s settle x\n----", "f:3: settle needs more=N"},
		{limit + "at 0s decide now\n----", "f:2: decide has no arguments"},
		{limit + "at 0s take k\n\ttake k\n----", "f:3: only lines below decide may be indented"},
		{limit + "at 0s decide\n\treset k\n----", `f:3: unknown verb "reset"`},
		{limit + "at 0s block k for=-1s\n----", "f:2: for: use a positive duration"},
		{limit + "at 0s take \"k\n----", "f:2: missing closing quote"},
		{limit + "at 0s take \"k\"x\n----", "f:2: missing space after a quoted word"},
		{"limit a: token_bucket 10/s\nat 0s take k\n----", "f:2: the rule is missing"},
	}
	for _, tt := range tests {
		if _, err := parseTranscript("f", tt.text); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q:\n got %v\nwant %s", tt.text, err, tt.want)
		}
	}
}

// TestTranscriptTells checks that a different result is reported with its line, and that rewriting changes only
// results.
func TestTranscriptTells(t *testing.T) {
	const text = "# of two\n\nlimit token_bucket 2/s\nat 0s take \"a key\"\nat 0s take \"a key\" n=3\n----\nallow remaining=1 reset=500ms\nallow 2, deny 1\n\n# the end\n"
	script, err := parseTranscript("f", text)
	if err != nil {
		t.Fatal(err)
	}
	play := func() *teller {
		clock := NewClock()
		return newTeller(NewReference(clock), clock, false)
	}
	err = script.run(play())
	if want := "f:8:\n got allow 1, deny 2\nwant allow 2, deny 1"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v\nwant %s", err, want)
	}
	got, err := script.rewrite(play())
	if want := strings.Replace(text, "allow 2, deny 1", "allow 1, deny 2", 1); err != nil || got != want {
		t.Errorf("got %v\n%s\nwant\n%s", err, got, want)
	}
}

// FuzzTranscript checks that the parser either reports an error with a line, or parses the text such that formatting
// and parsing it again changes nothing.
func FuzzTranscript(f *testing.F) {
	f.Add("# a comment\n\nlimit token_bucket 4/s\nat 0s take k\n----\nallow remaining=3 reset=250ms\n")
	f.Add("limit a: leaky_queue 1/s burst=3\nat 1s decide\n\ttake k rule=a cost=2 min=1 maxdelay=1s id=7\n\tpeek k rule=a\n----\nx\ny\n\n# end\n")
	f.Add("limit fixed_window 1/day calendar=day zone=Europe/Berlin\nat 2026-03-29T00:00:00Z take k as=x\nat 0s giveback x cost=1\nat 0s settle x more=2\n----\n")
	f.Add("limit sliding_window_counter 6/min sub_windows=6 rounding=nearest\nchange sliding_window_counter 7/min sub_windows=6\nat -1m take k n=10\n----\nallow 7, deny 3\n")
	f.Add("limit token_bucket 4/min refill=interval align=first_hit\nat 0s block k for=1s\nat 0s reset k\n----\ndone\ndone\n")
	f.Add("limit a: fixed_window 1/s over=1 for=1ms shadow charge_denied\nat 01:00:00 take \"\\x00\" rule=a\n----\n")
	f.Fuzz(func(t *testing.T, text string) {
		script, err := parseTranscript("f", text)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "f:") {
				t.Fatalf("error without a line: %v", err)
			}
			return
		}
		write := func(s *transcript) string {
			var b strings.Builder
			for i := range s.parts {
				s.parts[i].write(&b, s.parts[i].want)
			}
			return b.String()
		}
		once := write(script)
		again, err := parseTranscript("f", once)
		if err != nil {
			t.Fatalf("formatted text cannot be parsed: %v\n%s", err, once)
		}
		if twice := write(again); twice != once {
			t.Fatalf("formatting twice differs:\n%q\n%q", once, twice)
		}
	})
}
