package strictyaml_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/internal/strictyaml"
)

// scalar returns the node of a file's only value.
func scalar(t *testing.T, text string) *strictyaml.Node {
	t.Helper()
	root, faults := strictyaml.Parse([]byte("v: " + text))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return root.Field("v")
}

var decoderTests = []struct{ kind, text, want string }{
	{"string", "word", "word true"},
	{"string", "1.50", "1.50 true"},
	{"string", "", `"it: is empty: write a value, or remove it"`},
	{"string", "''", `"it: is empty: write a value, or remove it"`},
	{"string", "[a]", `"it: is a list: write one value"`},
	{"bool", "true", "true true"},
	{"bool", "false", "false true"},
	{"bool", "yes", `"it: is "yes": write true or false"`},
	{"bool", "'true'", `"it: is the text "true": write true or false, without quotes"`},
	{"int", "100", "100 true"},
	{"int", "-5", "-5 true"},
	{"int", "0", "0 true"},
	{"int", "101", `"it: 101 is not between -5 and 100"`},
	{"int", "010", `"it: is 010: write a whole number between -5 and 100, without quotes"`},
	{"int", "0x10", `"it: is 0x10: write a whole number between -5 and 100, without quotes"`},
	{"int", "+1", `"it: is +1: write a whole number between -5 and 100, without quotes"`},
	{"int", "'1'", `"it: is "1": write a whole number between -5 and 100, without quotes"`},
	{"int", "1.0", `"it: is 1.0: write a whole number between -5 and 100, without quotes"`},
	{"int", "~", `"it: is nothing: write a whole number between -5 and 100, without quotes"`},
	{"percent", "25%", "2500 true"},
	{"percent", "0%", "0 true"},
	{"percent", "12.5%", "1250 true"},
	{"percent", "0.25%", "25 true"},
	{"percent", "100.00%", "10000 true"},
	{"percent", "100.01%", `"it: is "100.01%": write at most 100%"`},
	{"percent", "1.234%", `"it: is "1.234%": write at most two decimal places"`},
	{"percent", "25", `"it: is 25: write a percentage, 25%"`},
	{"percent", "-5%", `"it: is "-5%": write a percentage, such as 25%"`},
	{"percent", "5.%", `"it: is "5.%": write a percentage, such as 25%"`},
	{"percent", "[a]", `"it: is a list: write a percentage, such as 25%"`},
	{"duration", "90s", "1m30s true"},
	{"duration", "1h30m", "1h30m0s true"},
	{"duration", "7d", "168h0m0s true"},
	{"duration", "1w2d3h", "219h0m0s true"},
	{"duration", "1.5d", "36h0m0s true"},
	{"duration", "5", `"it: 5 has no unit: write 5s for seconds, or another duration such as 10m, 1h30m or 7d"`},
	{"duration", "0s", `"it: is "0s": write a duration above zero"`},
	{"duration", "-1s", `"it: is "-1s": write a duration above zero"`},
	{"duration", "5min", `"it: is "5min": write a duration such as 90s, 10m, 1h30m or 7d"`},
	{"duration", "99999999w", `"it: is "99999999w", which is too long: write at most 106751d"`},
	{"duration", "9999999h", `"it: is "9999999h", which is too long: write at most 106751d"`},
	{"duration", "-1", `"it: is -1: write a duration such as 90s, 10m, 1h30m or 7d"`},
	{"duration", "0", `"it: is 0: write a duration such as 90s, 10m, 1h30m or 7d"`},
	{"duration or zero", "-0.5", `"it: is -0.5: write a duration such as 90s, 10m, 1h30m or 7d"`},
	{"duration from a second to an hour", "1s", "1s true"},
	{"duration from a second to an hour", "1h", "1h0m0s true"},
	{"duration from a second to an hour", "1h1ns", `"it: is "1h1ns", which is too long: write at most 1h"`},
	{"duration from a second to an hour", "999ms", `"it: 999ms is not between 1s and 1h"`},
	{"duration from a second to an hour", "1ns", `"it: 1ns is not between 1s and 1h"`},
	{"duration", "3h2d", `"it: is "3h2d": write a duration such as 90s, 10m, 1h30m or 7d"`},
	{"duration", "1d-1h", `"it: is "1d-1h": write a duration such as 90s, 10m, 1h30m or 7d"`},
	{"duration", "+5s", `"it: is "+5s": write a duration such as 90s, 10m, 1h30m or 7d"`},
	{"duration", "1d0", `"it: is "1d0": write a duration such as 90s, 10m, 1h30m or 7d"`},
	{"duration or zero", "0ms", "0s true"},
	{"duration or zero", "5ms", "5ms true"},
	{"duration or zero", "0", `"it: 0 has no unit: write 0s for seconds, or another duration such as 10m, 1h30m or 7d"`},
	{"duration or zero", "'0'", `"it: 0 has no unit: write 0s for seconds, or another duration such as 10m, 1h30m or 7d"`},
	{"duration or zero", "-1s", `"it: is "-1s": write a duration of zero or more"`},
	{"duration", "~", `"it: is nothing: write a duration such as 90s, 10m, 1h30m or 7d"`},
	{"word", "right", "1 true"},
	{"word", "rigth", `"it: is "rigth": did you mean "right"?"`},
	{"word", "up", `"it: is "up": write left or right"`},
	{"word", "{a: b}", `"it: is a mapping: write left or right"`},
	{"strings", "[a, 1]", "2 true"},
	{"strings", "a", "1 true"},
	{"strings", "[a, [b]]", `"it: is a list: write one value"`},
	{"sequence", "[a, b]", "2 true"},
	{"sequence", "a", `"it: is "a": write a list, one "- entry" per line"`},
	{"sequence", "", `"it: is empty: write a list, one "- entry" per line, or remove it"`},
	{"mapping", "{}", "true"},
	{"mapping", "", `"it: is empty: write key: value below it, or remove it"`},
	{"mapping", "[a]", `"it: is a list: write a mapping, key: value"`},
}

func TestDecoderValues(t *testing.T) {
	var d strictyaml.Decoder
	both := func(v, ok any) string { return fmt.Sprint(fmt.Sprint(v), " ", ok) }
	read := map[string]func(n *strictyaml.Node) any{
		"string":   func(n *strictyaml.Node) any { v, ok := d.String(n, "it"); return both(v, ok) },
		"bool":     func(n *strictyaml.Node) any { v, ok := d.Bool(n, "it"); return both(v, ok) },
		"int":      func(n *strictyaml.Node) any { v, ok := d.Int(n, "it", -5, 100); return both(v, ok) },
		"percent":  func(n *strictyaml.Node) any { v, ok := d.Percent(n, "it", 100_00); return both(v, ok) },
		"duration": func(n *strictyaml.Node) any { v, ok := d.Duration(n, "it"); return both(v, ok) },
		"duration or zero": func(n *strictyaml.Node) any {
			v, ok := d.DurationOrZero(n, "it")
			return both(v, ok)
		},
		"duration from a second to an hour": func(n *strictyaml.Node) any {
			v, ok := d.DurationBetween(n, "it", time.Second, time.Hour)
			return both(v, ok)
		},
		"word":     func(n *strictyaml.Node) any { v, ok := d.OneOf(n, "it", "left", "right"); return both(v, ok) },
		"strings":  func(n *strictyaml.Node) any { v, ok := d.Strings(n, "it"); return both(len(v), ok) },
		"sequence": func(n *strictyaml.Node) any { v, ok := d.Sequence(n, "it"); return both(len(v), ok) },
		"mapping":  func(n *strictyaml.Node) any { return d.IsMapping(n, "it") },
	}
	for _, test := range decoderTests {
		d = strictyaml.Decoder{}
		got := fmt.Sprint(read[test.kind](scalar(t, test.text)))
		if faults, _ := d.Faults(); len(faults) > 0 {
			got = `"` + faults[0].Msg + `"`
		}
		if got != test.want {
			t.Errorf("%s %q: got %s, want %s", test.kind, test.text, got, test.want)
		}
	}
}

func TestDecode(t *testing.T) {
	type target struct{ seen []string }
	note := func(name string) func(*target, *strictyaml.Node) {
		return func(v *target, n *strictyaml.Node) { v.seen = append(v.seen, name+"="+n.Text) }
	}
	fields := strictyaml.Fields[target]{"limit": note("limit"), "name": note("name"), "per": note("per")}
	root, _ := strictyaml.Parse([]byte("per: 1\nlimt: 2\nname: 3\nrate: 4\nsomething: 5\n"))
	var d strictyaml.Decoder
	var v target
	if strictyaml.Decode(&d, root, "rule", fields, map[string]string{"rate": "write limit"}, &v) {
		t.Error("unknown keys are accepted")
	}
	if got := strings.Join(v.seen, " "); got != "per=1 name=3" {
		t.Errorf("read %s", got)
	}
	faults, more := d.Faults()
	want := []string{
		`2:1 rule: there is no key "limt": did you mean "limit"?`,
		`4:1 rule: there is no key "rate" here: write limit`,
		`5:1 rule: there is no key "something": use limit, name or per`,
	}
	if len(faults) != len(want) || more != 0 || d.Count() != 3 {
		t.Fatalf("got %v", faults)
	}
	for i, f := range faults {
		if got := fmt.Sprintf("%d:%d %s", f.Line, f.Column, f.Msg); got != want[i] {
			t.Errorf("got  %s\nwant %s", got, want[i])
		}
	}
}

func TestFaultsAreBoundedAndInOrder(t *testing.T) {
	var d strictyaml.Decoder
	for i := range 1500 {
		d.Fault(&strictyaml.Node{Line: 2000 - i, Column: 1}, "%d", i)
	}
	faults, more := d.Faults()
	if len(faults) != 1000 || more != 500 || d.Count() != 1500 || faults[0].Line > faults[999].Line {
		t.Errorf("%d errors and %d more, from line %d", len(faults), more, faults[0].Line)
	}
}

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"1w": 168 * time.Hour, "1d12h": 36 * time.Hour, "1w1d1h1m1s1ms": 193*time.Hour + 61*time.Second + time.Millisecond,
		"0.5w": 84 * time.Hour, "250ms": 250 * time.Millisecond, "0": 0,
	} {
		if got, err := strictyaml.ParseDuration(text); err != nil || got != want {
			t.Errorf("%s: got %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "d", "1", "1x", "1d2", "d1", "1dd", "1.2.3d", "106751d24h", "15250w4d"} {
		if got, err := strictyaml.ParseDuration(text); err == nil {
			t.Errorf("%q: got %v", text, got)
		}
	}
}
