package rulefile_test

import (
	"slices"
	"testing"

	"github.com/sluiceproject/sluice/rules"
)

// Two domains in one file, as teams that share a rate limit service write them.
const (
	messagingDocument = `domain: messaging
descriptors:
  - {key: message_type, value: marketing, rate_limit: {unit: day, requests_per_unit: 5}}
`
	authDocument = `domain: auth
descriptors:
  - {key: auth_type, value: login, rate_limit: {unit: minute, requests_per_unit: 5}}
`
)

// A changed file of several documents is loaded as a whole or not at all, and errors name the lines of the file.
func TestWatchDocuments(t *testing.T) {
	eachWay(t, func(t *testing.T, dir string, paths ...string) {
		file := dir + "/a.yaml"
		envoy := messagingDocument + "---\n" + authDocument + "---\n"
		putFile(t, file, envoy+ruleText("1"))
		w := watch(t, paths...)
		domains := func(want ...string) {
			t.Helper()
			var got []string
			for _, d := range w.Set().Config().Domains {
				got = append(got, d.Name)
			}
			if !slices.Equal(got, want) {
				t.Errorf("the domains %q are live, want %q", got, want)
			}
		}
		domains("messaging", "auth")
		putFile(t, file, authDocument+"---\n"+ruleText("2"))
		w.wantLoad("2")
		domains("auth")
		for _, bad := range []struct{ text, at string }{
			{envoy + "rules:\n  - {name: first, description: 3, limit: 10}\n", "a.yaml:10:42: rule \"first\": limit: 10 has no unit"},
			{messagingDocument + "---\n" + authDocument + "    burst: 1\n---\n" + ruleText("3"), "a.yaml:8:"},
			{ruleText("3") + "---\n" + messagingDocument + "---\n" + messagingDocument, "a.yaml:10:9: duplicate domain 'messaging'"},
			{ruleText("3") + "---\n---\n{", "a.yaml:7:1: "},
		} {
			putFile(t, file, bad.text)
			w.wantError(bad.at)
			domains("auth")
			if got := described(w.Current()); got != "2" {
				t.Errorf("version %q is live", got)
			}
		}
		putFile(t, file, ruleText("4")+"---\n"+envoy)
		w.wantLoad("4")
		domains("messaging", "auth")
		if got := w.Set().DescriptorLimits("auth"); len(got) != 1 || got[0].Source.Pos != (rules.Position{File: file, Line: 12, Column: 5}) {
			t.Errorf("limits of auth: %+v", got)
		}
	})
}
