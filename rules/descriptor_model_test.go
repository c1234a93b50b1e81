package rules

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluiceproject/sluice/internal/keyenc"
)

// A second implementation of the matcher, written directly from the description of Envoy's service: it joins texts,
// scans lists and prepares nothing.

type slowStep struct {
	rule *DescriptorRule
	by   EntryMatch
}

// slowFind returns the rule for each entry, or nil if the descriptor does not end at a rule.
func slowFind(d *Domain, entries []Entry) []slowStep {
	var steps []slowStep
	rules := d.Descriptors
	for i, e := range entries {
		if i > 0 && len(rules) == 0 {
			return nil
		}
		step := slowChoose(rules, e.Key, e.Key+"_"+e.Value)
		if step.rule == nil {
			return nil
		}
		steps = append(steps, step)
		rules = step.rule.Descriptors
	}
	return steps
}

func slowChoose(rules []DescriptorRule, k, composite string) slowStep {
	for i := range rules {
		if slowComposite(&rules[i]) == composite {
			return slowStep{&rules[i], EntryExact}
		}
	}
	for i := range rules {
		if p := slowComposite(&rules[i]); strings.Contains(p, "*") && slowPattern(p).MatchString(latin1(composite)) {
			return slowStep{&rules[i], EntryWildcard}
		}
	}
	for i := range rules {
		if slowComposite(&rules[i]) == k {
			return slowStep{&rules[i], EntryKeyOnly}
		}
	}
	return slowStep{}
}

func slowComposite(r *DescriptorRule) string {
	if r.Value != "" {
		return r.Key + "_" + r.Value
	}
	return r.Key
}

func slowPattern(p string) *regexp.Regexp {
	return regexp.MustCompile(`(?s)\A` + strings.ReplaceAll(regexp.QuoteMeta(latin1(p)), `\*`, `.*`) + `\z`)
}

// latin1 returns one character for each byte, so that regular expressions can match any bytes.
func latin1(s string) string {
	runes := make([]rune, len(s))
	for i := range len(s) {
		runes[i] = rune(s[i])
	}
	return string(runes)
}

func (r *DescriptorRule) slowHasLimit() bool { return r.Unlimited || len(r.Limits) > 0 }

// slowFound returns the composites of the rule whose limit a descriptor finds.
func slowFound(d *Domain, entries []Entry) string {
	steps := slowFind(d, entries)
	if len(steps) == 0 || !steps[len(steps)-1].rule.slowHasLimit() {
		return ""
	}
	var composites []string
	for _, s := range steps {
		composites = append(composites, slowComposite(s.rule))
	}
	return strings.Join(composites, ".")
}

func slowPatternValue(s slowStep, e Entry) string {
	return strings.TrimPrefix(slowComposite(s.rule), e.Key+"_")
}

func (s slowStep) shares() bool { return s.by == EntryWildcard && s.rule.ShareThreshold }

func slowKey(steps []slowStep, entries []Entry) string {
	var parts []string
	for i, e := range entries {
		value := e.Value
		if steps[i].shares() {
			value = slowPatternValue(steps[i], e)
		}
		parts = append(parts, e.Key, value)
	}
	return keyenc.Join(parts...)
}

func slowStatKey(domain string, steps []slowStep, entries []Entry) string {
	detailed := steps[len(steps)-1].rule.DetailedMetric
	parts := []string{domain}
	for i, e := range entries {
		s := steps[i]
		keyValue := e.Key
		if e.Value != "" {
			keyValue = e.Key + "_" + e.Value
		}
		keyPattern := e.Key + "_" + slowPatternValue(s, e)
		switch {
		case s.shares():
			parts = append(parts, keyPattern)
		case detailed && !slices.ContainsFunc(steps, slowStep.shares):
			parts = append(parts, e.Key+"_"+e.Value)
		case detailed || s.by == EntryExact || s.rule.ValueToMetric:
			parts = append(parts, keyValue)
		case s.by == EntryWildcard:
			parts = append(parts, keyPattern)
		default:
			parts = append(parts, e.Key)
		}
	}
	return strings.Join(parts, ".")
}

// drawTree draws a random tree. Texts are short and of few characters, so that rules often match requests, in unusual
// ways.
func drawTree(t *rapid.T) Domain {
	text := rapid.StringOfN(rapid.SampledFrom([]rune("ab_*")), 1, 4, -1)
	value := rapid.OneOf(rapid.Just(""), text, rapid.SampledFrom([]string{"*", "a*", "*b", "a*b", "b", "a_b", "**"}))
	names := rapid.SampledFrom([]string{"", "", "one", "two", "three"})
	var level func(depth int) []DescriptorRule
	level = func(depth int) []DescriptorRule {
		var rules []DescriptorRule
		seen := make(map[string]bool)
		for range rapid.SampledFrom([]int{1, 2, 4, 8, 30}).Draw(t, "rules") {
			r := DescriptorRule{
				Key:            rapid.OneOf(rapid.SampledFrom([]string{"a", "b", "a_b", "*"}), text).Draw(t, "key"),
				Value:          value.Draw(t, "value"),
				Name:           names.Draw(t, "name"),
				ValueToMetric:  rapid.Bool().Draw(t, "value to metric"),
				DetailedMetric: rapid.Bool().Draw(t, "detailed"),
			}
			if composite := slowComposite(&r); !seen[composite] {
				seen[composite] = true
				r.ShareThreshold = strings.Contains(composite, "*") && rapid.Bool().Draw(t, "share")
				switch rapid.IntRange(0, 5).Draw(t, "limit") {
				case 0: // whitelisted
				case 1:
					r.Unlimited = true
				default:
					r.Limits = perMinute(10)
				}
				if replaced := names.Draw(t, "replaced"); replaced != r.Name && replaced != "" && r.slowHasLimit() {
					r.Replaces = append(r.Replaces, replaced)
				}
				rules = append(rules, r)
			}
		}
		if depth < 3 {
			for range rapid.IntRange(0, 2).Draw(t, "inner") {
				i := rapid.IntRange(0, len(rules)-1).Draw(t, "which")
				rules[i].Descriptors = level(depth + 1)
			}
		}
		return rules
	}
	return Domain{Name: "d", Descriptors: level(1)}
}

// drawEntries draws a random descriptor, usually by walking down the tree.
func drawEntries(t *rapid.T, d *Domain) []Entry {
	text := rapid.StringOfN(rapid.SampledFrom([]rune("ab_*")), 0, 5, -1)
	var all []Entry
	rules := d.Descriptors
	for range rapid.IntRange(0, 4).Draw(t, "entries") {
		e := Entry{text.Draw(t, "key"), text.Draw(t, "value")}
		if len(rules) > 0 && rapid.IntRange(0, 9).Draw(t, "stray") > 0 {
			r := &rules[rapid.IntRange(0, len(rules)-1).Draw(t, "rule")]
			c := strings.ReplaceAll(slowComposite(r), "*", text.Draw(t, "star"))
			e = Entry{c, text.Draw(t, "any value")}
			if cuts := regexp.MustCompile("_").FindAllStringIndex(c, -1); len(cuts) > 0 && rapid.Bool().Draw(t, "cut") {
				at := rapid.SampledFrom(cuts).Draw(t, "at")
				e = Entry{c[:at[0]], c[at[1]:]}
			}
		}
		all = append(all, e)
		rules = slowChoose(rules, e.Key, e.Key+"_"+e.Value).below()
	}
	return all
}

func (s slowStep) below() []DescriptorRule {
	if s.rule == nil {
		return nil
	}
	return s.rule.Descriptors
}

// matchesLikeTheSlowOne checks that both implementations find the same rules, keys, statistics names and replaced
// limits.
func matchesLikeTheSlowOne(t *rapid.T) {
	d := drawTree(t)
	trees, faults := compileDomains(&Config{Domains: []Domain{d}}, new(place))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	var m DescriptorMatches
	for range rapid.IntRange(1, 30).Draw(t, "requests") {
		var ds []Descriptor
		for range rapid.IntRange(0, 4).Draw(t, "descriptors") {
			ds = append(ds, Descriptor{Entries: drawEntries(t, &d), Cost: int64(len(ds))})
		}
		trees["d"].match(ds, &m)
		compareWithSlow(t, &d, ds, &m)
	}
}

func compareWithSlow(t *rapid.T, d *Domain, ds []Descriptor, m *DescriptorMatches) {
	replaced := make(map[string]bool)
	found := make([][]slowStep, len(ds))
	for i := range ds {
		steps := slowFind(d, ds[i].Entries)
		if len(steps) > 0 && steps[len(steps)-1].rule.slowHasLimit() {
			found[i] = steps
			for _, name := range steps[len(steps)-1].rule.Replaces {
				replaced[name] = true
			}
		}
	}
	next := 0
	for i := range ds {
		got := m.Matches[i]
		if found[i] == nil {
			if got.Limit != nil {
				t.Fatalf("%q found %s, want nothing", ds[i].Entries, got.Limit.FullKey)
			}
			continue
		}
		steps := found[i]
		rule := steps[len(steps)-1].rule
		if got.Limit == nil || got.Limit.FullKey != "d."+slowFound(d, ds[i].Entries) {
			t.Fatalf("%q found %+v, want d.%s", ds[i].Entries, got.Limit, slowFound(d, ds[i].Entries))
		}
		stat := string(got.Limit.AppendStatKey(nil, ds[i].Entries))
		if want := slowStatKey("d", steps, ds[i].Entries); stat != want {
			t.Fatalf("%q counts as %q, want %q", ds[i].Entries, stat, want)
		}
		if want := !rule.Unlimited && replaced[rule.Name]; got.Replaced != want {
			t.Fatalf("%q replaced: %v, want %v", ds[i].Entries, got.Replaced, want)
		}
		if rule.Unlimited || got.Replaced {
			continue
		}
		if next >= len(m.Takes) || m.Takes[next].Rule != got.Limit.Rules[0] || m.Takes[next].Cost != ds[i].Cost ||
			m.Takes[next].Key != slowKey(steps, ds[i].Entries) {
			t.Fatalf("%q: take %d of %+v is not under %q", ds[i].Entries, next, m.Takes, slowKey(steps, ds[i].Entries))
		}
		next++
	}
	if next != len(m.Takes) {
		t.Fatalf("%d takes, want %d", len(m.Takes), next)
	}
}

func TestMatchDescriptorsLikeTheSlowOne(t *testing.T) { rapid.Check(t, matchesLikeTheSlowOne) }

func FuzzMatchDescriptors(f *testing.F) { f.Fuzz(rapid.MakeFuzz(matchesLikeTheSlowOne)) }

// Different descriptors that find one rule have different keys, unless a share_threshold counts them together.
func TestDescriptorKeysAreInjective(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.SampledFrom([]rune("ab_*\x00\x01\x02=")), 0, 6, -1)
		depth := rapid.IntRange(1, 3).Draw(t, "depth")
		rule := limited("*", "")
		for range depth - 1 {
			rule = node("*", "", rule)
		}
		trees, faults := compileDomains(&Config{Domains: []Domain{{Name: "d", Descriptors: forest{rule}}}}, new(place))
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		var ds []Descriptor
		for range 2 {
			var all []Entry
			for range depth {
				all = append(all, Entry{text.Draw(t, "key"), text.Draw(t, "value")})
			}
			ds = append(ds, Descriptor{Entries: all})
		}
		var m DescriptorMatches
		trees["d"].match(ds, &m)
		if len(m.Takes) != 2 {
			t.Fatalf("%d takes", len(m.Takes))
		}
		same := slices.Equal(ds[0].Entries, ds[1].Entries)
		if (m.Takes[0].Key == m.Takes[1].Key) != same {
			t.Fatalf("%q and %q have the keys %q and %q", ds[0].Entries, ds[1].Entries, m.Takes[0].Key, m.Takes[1].Key)
		}
	})
}
