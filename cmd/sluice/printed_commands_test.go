package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/operate/admincli"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/rules"
)

// shellWords returns the words into which a shell splits each command.
func shellWords(t *testing.T, commands []string) [][]string {
	t.Helper()
	var script strings.Builder
	for _, c := range commands {
		fmt.Fprintf(&script, "printf '%%s\\0' %s\nprintf '\\n'\n", c)
	}
	cmd := exec.Command("sh")
	cmd.Stdin = strings.NewReader(script.String())
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the shell does not accept a command: %v", err)
	}
	var all [][]string
	for line := range strings.Lines(string(out)) {
		all = append(all, strings.Split(strings.TrimSuffix(line, "\x00\n"), "\x00"))
	}
	if len(all) != len(commands) {
		t.Fatalf("the shell returned %[2]d of %[1]d commands", len(commands), len(all))
	}
	return all
}

// oddText returns a random text of characters with a special meaning in names, keys, shells or flags.
func oddText(r *rand.Rand) string {
	const odd = `ab=="'#  /-(~\$*` + "`\n\té:+.@"
	all := []rune(odd)
	text := make([]rune, 1+r.IntN(4))
	for i := range text {
		text[i] = all[r.IntN(len(all))]
	}
	return string(text)
}

// oddBucket is a bucket of a rule with special characters in its name and key.
type oddBucket struct {
	set  *rules.Set
	rule *sluice.Rule
	key  string
}

// envoyBucket returns a bucket of a rule of an Envoy domain, with a value or without.
func envoyBucket(t *testing.T, r *rand.Rand) oddBucket {
	t.Helper()
	e := rules.Entry{Key: oddText(r), Value: oddText(r)}
	d := rules.DescriptorRule{Key: e.Key, Limits: []rules.Limit{{Limit: sluice.PerHour(5)}}}
	if r.IntN(2) == 0 {
		d.Value = e.Value
	}
	domain := oddText(r)
	set, err := rules.New(rules.Config{Domains: []rules.Domain{{Name: domain, Descriptors: []rules.DescriptorRule{d}}}})
	if err != nil {
		t.Fatal(err)
	}
	var m rules.DescriptorMatches
	set.MatchDescriptors(domain, []rules.Descriptor{{Entries: []rules.Entry{e}, Cost: 1}}, &m)
	if len(m.Takes) != 1 {
		t.Fatalf("%q %q: %d takes", domain, e, len(m.Takes))
	}
	return oddBucket{set, m.Takes[0].Rule, strings.Clone(m.Takes[0].Key)}
}

// The program accepts every command that top and status suggest, and the command selects the rule and key of the printed row.
func TestPrintedCommandsAreAccepted(t *testing.T) {
	var body []byte
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ = io.ReadAll(r.Body)
		fmt.Fprintln(w, `{"buckets": [], "suspended": []}`)
	}))
	defer service.Close()
	t.Setenv("SLUICE_ADMIN_URL", service.URL)

	r := rand.New(rand.NewPCG(1, 2))
	var buckets []oddBucket
	for range 300 {
		buckets = append(buckets, envoyBucket(t, r))
	}
	for _, name := range []string{"a=b", "-x", "--all", "--", "it's", "$HOME", "~", "a/b?c", "*", "+", "=a"} {
		set, err := rules.New(rules.Config{Rules: []rules.Rule{{
			Name: name, Per: []rules.Ref{{Name: "query:a=b"}, {Name: "header:X-User"}},
			Limits: []rules.Limit{{Limit: sluice.PerHour(5)}},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		found, err := set.Buckets(name, []rules.KeyPart{{Name: "query:a=b", Value: "c=d"}, {Name: "header:X-User", Value: oddText(r)}})
		if err != nil {
			t.Logf("%s: %v", name, err)
			continue
		}
		buckets = append(buckets, oddBucket{set, found[0].Rule, found[0].Key})
	}

	var peeks, resumes []string
	for _, b := range buckets {
		var key adminmsg.Key
		for _, p := range b.set.KeyParts(b.rule, b.key) {
			key = append(key, adminmsg.Entry{Key: p.Name, Value: p.Value})
		}
		var top, status strings.Builder
		if err := admincli.WriteTop(&adminmsg.Top{Entries: []adminmsg.TopEntry{{BucketName: adminmsg.BucketName{Rule: b.rule.Name, Key: key}, Count: 1}}}, false, &top, term.Style{}); err != nil {
			t.Fatal(err)
		}
		_ = admincli.WriteStatus(&adminmsg.Status{Suspended: []string{b.rule.Name}}, &status, term.Style{})
		_, peek, _ := strings.Cut(top.String(), "for details: sluice ")
		_, resume, _ := strings.Cut(status.String(), "to undo: sluice ")
		resume, _, _ = strings.Cut(resume, "\n")
		peeks, resumes = append(peeks, strings.TrimSuffix(peek, "\n")), append(resumes, resume)
	}
	for i, args := range shellWords(t, peeks) {
		b := buckets[i]
		body = nil
		code, _, stderr := sluiceRun(t, args...)
		var s adminmsg.Selector
		if err := json.Unmarshal(body, &s); code != term.ExitFine || err != nil {
			t.Errorf("sluice %s: exit %d, %v: %s", peeks[i], code, err, stderr)
			continue
		}
		var parts []rules.KeyPart
		for _, e := range s.Key {
			parts = append(parts, rules.KeyPart{Name: e.Key, Value: e.Value})
		}
		if found, err := b.set.Buckets(s.Rule, parts); err != nil || len(found) != 1 || found[0].Rule.Name != b.rule.Name || found[0].Key != b.key {
			t.Errorf("sluice %s finds %+v, %v; want %q of rule %s", peeks[i], found, err, b.key, b.rule.Name)
		}
	}
	for i, args := range shellWords(t, resumes) {
		body = nil
		code, _, stderr := sluiceRun(t, args...)
		var names adminmsg.RuleNames
		if err := json.Unmarshal(body, &names); code != term.ExitFine || err != nil || !slices.Equal(names.Rules, []string{buckets[i].rule.Name}) {
			t.Errorf("sluice %s: exit %d, resumes %q, %v: %s", resumes[i], code, names.Rules, err, stderr)
		}
	}
}

// The first argument of a command is the name of a rule, with any characters. An unknown name gets an error with fitting advice.
func TestLiveRuleNames(t *testing.T) {
	directory := t.TempDir()
	write(t, filepath.Join(directory, "d.yaml"), `domain: d
descriptors:
  - {key: type, value: marketing, rate_limit: {unit: year, requests_per_unit: 2}}
  - {key: path, value: "GET /a #1 it's \"b\"", rate_limit: {unit: year, requests_per_unit: 2}}
`)
	p := startServe(t, fmt.Sprintf("rules: {paths: [%q]}", directory))
	p.asked(t)
	odd := `d/path="GET /a #1 it's \"b\""`
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"peek", "d/type=marketing", "type=marketing"}, term.ExitFine, "2 of 2 left"},
		{[]string{"peek", "d/type=marketing"}, term.ExitFine, "2 of 2 left"}, // this rule has only one key
		{[]string{"reset", "d/type=marketing", "type=marketing"}, term.ExitFine, "reset d/type=marketing type=marketing"},
		{[]string{"reset", "d/type=marketing", "--all", "--yes"}, term.ExitFine, "reset all keys of d/type=marketing"},
		{[]string{"block", "d/type=marketing", "type=marketing", "--for", "1m"}, term.ExitFine, "blocked d/type=marketing"},
		{[]string{"unblock", "d/type=marketing", "type=marketing"}, term.ExitFine, "unblocked d/type=marketing"},
		{[]string{"peek", odd}, term.ExitFine, "2 of 2 left"},
		{[]string{"reset", odd}, term.ExitFine, "reset '"},
		{[]string{"reset", odd, "--all", "--dry-run"}, term.ExitFine, "would reset all keys of '"},
		{[]string{"block", odd, "--for", "1m"}, term.ExitFine, "blocked '"},
		{[]string{"unblock", odd}, term.ExitFine, "unblocked '"},

		{[]string{"peek", "user=ada"}, term.ExitWrong, "sluice peek posts-per-user user=ada"},
		{[]string{"block", "user=ada", "--for", "1m"}, term.ExitWrong, "sluice block posts-per-user user=ada"},
		{[]string{"peek", "POST /posts"}, term.ExitWrong, "sluice peek --request 'POST /posts'"},
		{[]string{"peek", "d/type=marketin"}, term.ExitWrong, `did you mean "d/type=marketing"?`},
	} {
		code, out, stderr := sluiceRun(t, test.args...)
		if code != test.code || !strings.Contains(out+stderr, test.want) {
			t.Errorf("sluice %q: exit %d, want %d and %q in\n%s%s", test.args, code, test.code, test.want, out, stderr)
		}
	}
}

// The exit code of explain is 0 even if the request would be denied. take and peek exit with 1 if a limit denies.
func TestExplainEndsWithZero(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, file, "rules: [{name: a, match: {path: /a}, limit: 1/h}]\n")
	p := startServe(t, fmt.Sprintf("rules: {paths: [%q]}", file))
	p.asked(t)
	for _, a := range []ask{
		{"take /a", term.ExitFine, "200 OK"},
		{"explain --live /a", term.ExitFine, "denied: "},
		{"explain --live /a -o json", term.ExitFine, `"outcome": "denied"`},
		{"explain --rules " + file + " /a --cost 2", term.ExitFine, "denied: "},
		{"take /a", term.ExitFindings, "429 Too Many Requests"},
		{"peek a", term.ExitFindings, "0 of 1 left"},
	} {
		a.run(t)
	}
}

// explain shows a suspended rule as suspended, without any remaining quota, which is unknown.
func TestExplainSuspended(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, file, `rules:
  - {name: posts, match: {path: /posts}, per: "header:X-User", limit: 5/h}
  - {name: all, match: {path: /both}, limit: 7/h}
  - {name: some, match: {path: /both}, limit: 9/h}
`)
	p := startServe(t, fmt.Sprintf("rules: {paths: [%q]}", file))
	p.asked(t)
	ask{"suspend posts all", term.ExitFine, "suspended"}.run(t)
	for args, want := range map[string]struct{ has, not []string }{
		"explain --live --only-matching /posts -H 'X-User: ada'": {[]string{"allowed: posts is suspended, all requests are allowed", "limit 5/h: suspended, all requests are allowed"}, []string{"afterwards", "left", "unused"}},
		"explain --live --only-matching /both":                   {[]string{"allowed: some has 8 of 9 left afterwards; all is suspended", "limit 7/h: suspended, all requests are allowed", "limit 9/h: 9 of 9 left, unused"}, []string{"0 of 7"}},
	} {
		code, out, stderr := sluiceRun(t, words(t, args)...)
		for _, text := range want.has {
			if code != term.ExitFine || !strings.Contains(out, text) {
				t.Errorf("sluice %s: exit %d, want %q in\n%s%s", args, code, text, out, stderr)
			}
		}
		for _, text := range want.not {
			if strings.Contains(out, text) {
				t.Errorf("sluice %s: %q in\n%s", args, text, out)
			}
		}
	}
	_, out, _ := sluiceRun(t, "explain", "--live", "/both", "-o", "json")
	if strings.Count(out, `"source": "suspended"`) != 1 {
		t.Errorf("no limit has the source suspended:\n%s", out)
	}
}
