package rules

import "testing"

var statKeys = []struct {
	name    string
	rule    DescriptorRule
	entries []Entry
	want    string
}{
	{"exact", limited("k", "v"), entries("k", "v"), "d.k_v"},
	{"exact by the quirk of composites", limited("foo_bar", ""), entries("foo", "bar"), "d.foo_bar"},
	{"exact without a value", limited("k_", ""), entries("k", ""), "d.k"},
	{"wildcard", limited("k", "v*"), entries("k", "vw"), "d.k_v*"},
	{"wildcard, value_to_metric", limited("k", "v*").with(valueToMetric), entries("k", "vw"), "d.k_vw"},
	{"wildcard, share_threshold", limited("k", "v*").with(sharing), entries("k", "vw"), "d.k_v*"},
	{"wildcard, both", limited("k", "v*").with(sharing).with(valueToMetric), entries("k", "vw"), "d.k_v*"},
	{"wildcard in the key", limited("k*", ""), entries("key", "v"), "d.key_k*"},
	{"wildcard, the value is the pattern", limited("k", "v*").with(sharing), entries("k", "v*"), "d.k_v*"},
	{"key only", limited("k", ""), entries("k", "v"), "d.k"},
	{"key only, value_to_metric", limited("k", "").with(valueToMetric), entries("k", "v"), "d.k_v"},
	{"key only, value_to_metric, no value", limited("k", "").with(valueToMetric), entries("k", ""), "d.k"},
	{"key only, detailed_metric", limited("k", "").with(detailed), entries("k", "v"), "d.k_v"},
	{"key only, detailed_metric, no value", limited("k", "").with(detailed), entries("k", ""), "d.k_"},
	{"key only by a key with *", limited("a*b", ""), entries("a*b", "c"), "d.a*b"},
	{"wildcard by a key with *", limited("a*", ""), entries("a*", "c"), "d.a*_a*"},
	{
		"value_to_metric of one level", node("a", "", limited("b", "")).with(valueToMetric),
		entries("a", "1", "b", "2"), "d.a_1.b",
	},
	{
		"detailed_metric at all levels", node("a", "", limited("b", "x*").with(detailed)),
		entries("a", "1", "b", "xy"), "d.a_1.b_xy",
	},
	{
		"detailed_metric above the leaf does nothing", node("a", "", limited("b", "")).with(detailed),
		entries("a", "1", "b", "2"), "d.a.b",
	},
	{
		"detailed_metric below share_threshold", node("a", "1*", limited("b", "").with(detailed)).with(sharing),
		entries("a", "12", "b", "2"), "d.a_1*.b_2",
	},
	{
		"detailed_metric below share_threshold, no value",
		node("a", "1*", limited("b", "").with(detailed)).with(sharing),
		entries("a", "12", "b", ""), "d.a_1*.b",
	},
}

func TestStatKeys(t *testing.T) {
	for _, tt := range statKeys {
		t.Run(tt.name, func(t *testing.T) {
			var m DescriptorMatches
			mustTree(t, tt.rule).match([]Descriptor{{Entries: tt.entries}}, &m)
			if m.Matches[0].Limit == nil {
				t.Fatal("no limit")
			}
			if got := string(m.Matches[0].Limit.AppendStatKey(nil, tt.entries)); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
			if fixed, ok := m.Matches[0].Limit.FixedStatKey(); ok && fixed != tt.want {
				t.Errorf("the fixed key is %q, want %q", fixed, tt.want)
			}
		})
	}
}

// A limit that a request brings has the reference's name, which is joined by a dot only to parts that are not empty.
func TestStatKeysOfOverrides(t *testing.T) {
	l := &DescriptorLimit{Domain: "d"}
	for _, tt := range []struct {
		entries []Entry
		want    string
	}{
		{nil, "d."},
		{entries("k", "v", "l", ""), "d.k_v.l"},
		{entries("", "", "k", "v"), "d.k_v"},
		{entries("", "v", "k", ""), "d._v.k"},
		{entries("k", "", "", "", "l", "w"), "d.k..l_w"},
	} {
		if got := string(l.AppendStatKey(nil, tt.entries)); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.entries, got, tt.want)
		}
	}
}

func TestFixedStatKeys(t *testing.T) {
	for _, tt := range []struct {
		rule DescriptorRule
		want bool
	}{
		{limited("k", "v"), true},
		{limited("k", "v*"), true},
		{limited("k", "v*").with(sharing), true},
		{limited("k", ""), true},
		{limited("k", "").with(valueToMetric), false},
		{limited("k", "").with(detailed), false},
		{limited("k*", ""), false},
		{node("a", "", limited("b", "")).with(detailed), true},
		{node("a", "", limited("b", "")).with(valueToMetric), false},
	} {
		if _, got := mustTree(t, tt.rule).limits[0].FixedStatKey(); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.rule.label(), got, tt.want)
		}
	}
}

func TestCounterKeys(t *testing.T) {
	for _, tt := range []struct {
		rule    DescriptorRule
		entries []Entry
		want    string
	}{
		{limited("key", "value"), entries("key", "value"), "d_key_value_"},
		{limited("key", ""), entries("key", "value"), "d_key_value_"},
		{node("key2", "", limited("subkey2", "")), entries("key2", "value2", "subkey2", "subvalue2"), "d_key2_value2_subkey2_subvalue2_"},
		{limited("path", "files/*"), entries("path", "files/a"), "d_path_files/a_"},
		{limited("path", "files/*").with(sharing), entries("path", "files/a"), "d_path_files/*_"},
		{node("path", "files/*", limited("k", "")).with(sharing), entries("path", "files/a", "k", "v"), "d_path_files/*_k_v_"},
	} {
		var m DescriptorMatches
		mustTree(t, tt.rule).match([]Descriptor{{Entries: tt.entries}}, &m)
		if got := string(m.Matches[0].Limit.AppendCounterKey(nil, tt.entries)); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
	brought := &DescriptorLimit{Domain: "d"}
	if got := string(brought.AppendCounterKey(nil, entries("a", "b"))); got != "d_a_b_" {
		t.Errorf("a limit that the request brought counts under %q", got)
	}
}

// Deep siblings keep their own path from the top.
func TestStatKeysOfDeepSiblings(t *testing.T) {
	leaves := forest{limited("x", ""), limited("y", "1*"), limited("z", "")}
	tree := mustTree(t, node("a", "", node("b", "", node("c", "", node("d", "", node("e", "", leaves...))))))
	for i, want := range []string{"d.a.b.c.d.e.x", "d.a.b.c.d.e.y_1*", "d.a.b.c.d.e.z"} {
		ds := entries("a", "1", "b", "1", "c", "1", "d", "1", "e", "1", leaves[i].Key, "1")
		var m DescriptorMatches
		tree.match([]Descriptor{{Entries: ds}}, &m)
		if got := string(m.Matches[0].Limit.AppendStatKey(nil, ds)); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
