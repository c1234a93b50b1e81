package rulefile

import (
	"errors"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/internal/strictyaml"
	"github.com/sluiceproject/sluice/rules"
)

// currentNames is a file without errors that has the new names of renamed in all places.
const currentNames = `attributes:
  user: [{header: X-User, lowercase: true}]
defaults: {on_missing: reject, on_limit: deny}
load_shedding: [{name: api, concurrency: {min: 10}}]
rules:
  - name: a
    per: user
    on_missing: reject
    on_limit: deny
    actual_cost: {header: X-Cost, strip_header: true}
    limit: {rate: 10/min, algorithm: fixed_window, align: first_request, soft_excess: 2, soft_period: 10s}
    tiers:
      by: user
      free: {rate: 10/min, algorithm: fixed_window, align: first_request, soft_excess: 2, soft_period: 10s}
    overrides:
      - {key: ada, limit: {rate: 10/min, algorithm: fixed_window, align: first_request, soft_excess: 2, soft_period: 10s}}
  - name: b
    limits:
      - {rate: 10/min, algorithm: fixed_window, align: first_request, soft_excess: 2, soft_period: 10s}
      - {concurrent: 5, permit_ttl: 10s}
    on_limit: queue
    queue: {keep_headers: [Authorization], max_attempts: 3, expires_after: 1h, result_ttl: 1h}
  - name: c
    per: user
    limit: {concurrent: 5, permit_ttl: 10s}
    tiers: {by: user, free: [{concurrent: 5, permit_ttl: 10s}]}
    overrides: {ada: {concurrent: 5, permit_ttl: 10s}}
`

// In each place, an old name gets an error with its position and the new name, and no other error.
func TestRenamedNames(t *testing.T) {
	if _, err := Parse(Options{}, File{"rules.yaml", []byte(currentNames)}); err != nil {
		t.Fatal(err)
	}
	root, _ := strictyaml.Parse([]byte(currentNames))
	for old, name := range renamed {
		key, value, isValue := strings.Cut(old, ": ")
		found := findNames(root, key, name, isValue)
		if len(found) == 0 {
			t.Errorf("%s: currentNames does not have %s", old, name)
		}
		for _, n := range found {
			lines := strings.SplitAfter(currentNames, "\n")
			before, after := lines[n.Line-1][:n.Column-1], lines[n.Line-1][n.Column-1:]
			written := key
			if isValue {
				written = value
			}
			lines[n.Line-1] = before + written + strings.TrimPrefix(after, name)
			_, err := Parse(Options{}, File{"rules.yaml", []byte(strings.Join(lines, ""))})
			all := flatten(err)
			var e *rules.Error
			want := ": " + old + ": renamed: write " + name
			if isValue {
				want = ": " + key + `: the value "` + value + `" is renamed: write "` + name + `"`
			}
			pos := rules.Position{File: "rules.yaml", Line: n.Line, Column: n.Column}
			if len(all) != 1 || !errors.As(all[0], &e) || e.Pos != pos || !strings.HasSuffix(": "+e.Msg, want) ||
				strings.HasPrefix(lines[n.Line-1], "defaults:") != strings.HasPrefix(e.Msg, "defaults: ") {
				t.Errorf("%s at %v: got\n%v", old, pos, err)
			}
		}
	}
}

// findNames returns the keys with a name, or the values with it that a key has.
func findNames(n *strictyaml.Node, key, name string, value bool) (found []*strictyaml.Node) {
	for _, item := range n.Items {
		found = append(found, findNames(item, key, name, value)...)
	}
	for _, f := range n.Fields {
		switch {
		case value && f.Key.Text == key && f.Value.Text == name:
			found = append(found, f.Value)
		case !value && f.Key.Text == name:
			found = append(found, f.Key)
		}
		found = append(found, findNames(f.Value, key, name, value)...)
	}
	return found
}

func TestRenamedKeyBesideTheNewOne(t *testing.T) {
	const text = "rules: [{name: a, limit: 1/s, settle: {header: X-Cost}, actual_cost: {header: X-Cost}}]"
	_, err := Parse(Options{}, File{"rules.yaml", []byte(text)})
	if want := `rules.yaml:1:31: rule "a": settle: renamed: write actual_cost`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// Messages about a limit quote it and list the forms that are correct at its place.
func TestLimitAdvice(t *testing.T) {
	for text, want := range map[string]string{
		"rules: [{name: a, per: ip, limit: 5/s, overrides: {1.2.3.4: block}}]": `rules.yaml:1:61: rule "a": overrides: 1.2.3.4: "block" is no limit: write a limit such as 10/s, unlimited, or deny`,
		"rules: [{name: a, limit: 5 concurrent ttl 10s}]":                      `rules.yaml:1:26: rule "a": limit: "5 concurrent ttl 10s" is the form of the library: write {concurrent: 5, permit_ttl: 10s}`,
		"rules: [{name: a, limit: 5/s, on_limit: delay, max_delay: -1}]":       `rules.yaml:1:59: rule "a": max_delay: is -1: write a duration such as 90s, 10m, 1h30m or 7d`,
		"defaults: {on_limit: reject}\nrules: []":                              `rules.yaml:1:22: defaults: on_limit: the value "reject" is renamed: write "deny"`,
		"defaults: {accuracy: no}\nrules: []":                                  `rules.yaml:1:22: defaults: accuracy: is "no": write exact, lease or eventual`,
	} {
		if _, err := Parse(Options{}, File{"rules.yaml", []byte(text)}); err == nil || err.Error() != want {
			t.Errorf("%s: got\n%v\nwant\n%s", text, err, want)
		}
	}
}
