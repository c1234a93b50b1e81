package redisstore

import (
	"strings"
	"testing"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/private"
)

func namesOf(n *namer, rule, key, slot string) []string {
	var all []string
	for _, a := range algorithms {
		if a.name == "leaky_queue" || a.name == "initial_and_others" { // stored like other kinds
			continue
		}
		r := sluice.Must(sluice.NewRule(sluice.Rule{Name: rule, Limit: a.limits[0]}))
		of := name{private.RuleOf(r).ID, key, slot}
		all = append(all, string(n.state(nil, &of, private.ParamsOf(&r.Limit))))
		if a.name == "sub_windows" {
			l := a.limits[0]
			l.SubWindows = 50
			all = append(all, string(n.state(nil, &of, private.ParamsOf(sluice.Must(l.Build())))))
		}
	}
	r := sluice.Must(sluice.NewRule(sluice.Rule{Name: rule, Limit: algorithms[0].limits[0]}))
	of := name{private.RuleOf(r).ID, key, slot}
	return append(all, string(n.block(nil, &of)), string(n.id(nil, &of, 1)), string(n.id(nil, &of, 1<<63)))
}

// FuzzNames checks that two buckets never share a stored key, and that a stored key is printable and has at most one
// hash tag.
func FuzzNames(f *testing.F) {
	f.Add("a", "b", "c", "a", "bc", "")
	f.Add("api", "{user}", "", "api", "user", "")
	f.Add("api", "k\x00", "t", "api", "k", "t")
	f.Add("api", strings.Repeat("k", 36), "", "api", strings.Repeat("k", 37), "")
	f.Add("sluice", "#AAAAAAAAAAAAAAAAAAAAAA", "", "sluice", "\x01", "")
	f.Fuzz(func(t *testing.T, rule1, key1, slot1, rule2, key2, slot2 string) {
		if rule1 == "" || rule2 == "" || len(rule1) > sluice.MaxRuleName || len(rule2) > sluice.MaxRuleName {
			return
		}
		for _, n := range []*namer{{prefix: "sluice:"}, {prefix: "sluice:", tagged: true}} {
			first, second := namesOf(n, rule1, key1, slot1), namesOf(n, rule2, key2, slot2)
			seen := map[string]bool{}
			for _, stored := range first {
				if seen[stored] {
					t.Fatalf("two entries of one bucket have the stored key %q", stored)
				}
				seen[stored] = true
				checkParsed(t, n, stored, rule1, key1, slot1)
				tags := strings.Count(stored, "{")
				odd := strings.ContainsFunc(stored, func(r rune) bool { return r <= ' ' || r > '~' })
				if odd || tags != strings.Count(stored, "}") || tags > 1 || (tags == 1) != n.tagged {
					t.Fatalf("stored as %q", stored)
				}
			}
			if rule1 == rule2 && key1 == key2 {
				continue
			}
			for _, stored := range second {
				if seen[stored] {
					t.Fatalf("%q %q and %q %q have the same stored key %q", rule1, key1, rule2, key2, stored)
				}
			}
		}
	})
}

// checkParsed checks that a stored key can be parsed, and that an idempotency record is not taken for a bucket.
func checkParsed(t *testing.T, n *namer, stored, rule, key, slot string) {
	t.Helper()
	r := sluice.Must(sluice.NewRule(sluice.Rule{Name: rule, Limit: sluice.PerHour(1)}))
	l, ok := n.parse(stored)
	kind, _ := strings.CutPrefix(stored[strings.Index(stored, "}")+1:], n.prefix)
	if isID := kind[1] == letterID; ok == isID {
		t.Fatalf("parse %q: ok is %v", stored, ok)
	}
	if !ok {
		return
	}
	if l.RuleDigest != string(appendRule(nil, private.RuleOf(r).ID)) || l.Blocked != (kind[1] == letterBlock) || l.Blocked != (l.Kind == "") ||
		isPlainText(key) && (l.Key != key || l.KeyDigest != "") || !isPlainText(key) && (l.Key != "" || l.KeyDigest == "") ||
		l.HashTagged != (n.tagged && isPlainText(key) && slot != "") {
		t.Fatalf("%q of rule %q, key %q, slot %q: %+v", stored, rule, key, slot, l)
	}
}
