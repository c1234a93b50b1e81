package admincli

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// diagnosed returns the output of WriteDoctor for the JSON of two responses.
func diagnosed(t *testing.T, rules, status string) (string, error) {
	t.Helper()
	var r adminmsg.Rules
	var s adminmsg.Status
	for _, err := range []error{json.Unmarshal([]byte(rules), &r), json.Unmarshal([]byte(status), &s)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var b strings.Builder
	err := WriteDoctor(&r, &s, &b, term.Style{})
	return b.String(), err
}

const (
	strict = `{"name":"posts","limits":[{"limit":"10/min"}],"per":["attr:user"],"denied":5,"verdict":{"kind":"too_strict","limit":"posts#2","since":"2026-01-02T03:04:05Z",
		"text":"352 of 9,870 keys were denied.\u001b[31m","evidence":["one","two"],"advice":{"text":"Raise the limit."},"confidence":"high","needs_change":true}}`
	abused = `{"name":"logins","limits":[{"limit":"5/min"}],"per":["ip"],"denied":900,"verdict":{"kind":"one_abuser","limit":"logins","since":"2026-01-02T03:04:05Z",
		"text":"ip=198.18.0.2 has 97 % of the denials.","evidence":[],"advice":null,"confidence":"medium","needs_change":false}}`
	fitting  = `{"name":"a","verdict":{"kind":"fits"}},{"name":"b","verdict":{"kind":"no_verdict"}},{"name":"c","verdict":{"kind":"fits"}},{"name":"unjudged"}`
	healthy  = `{"version":"v1","started_at":"2026-01-02T03:04:05Z","store":{"kind":"memory","up":true,"instances":1},"log_level":"info"}`
	degraded = `{"version":"v1","started_at":"2026-01-02T03:04:05Z","store":{"kind":"redis","up":false,"instances":1},"log_level":"info"}`
)

// The rules that need a change come first, whatever their denials; then the status.
func TestDoctor(t *testing.T) {
	got, err := diagnosed(t, `{"rules":[`+abused+`,`+fitting+`,`+strict+`]}`, healthy)
	if !errors.Is(err, term.ErrFindings) {
		t.Errorf("a rule that needs a change ends with %v", err)
	}
	before, status, _ := strings.Cut(got, "healthy: ")
	compare(t, "doctor", before, `
1 of 6 rules to change

posts#2: too strict since 00:00:00, confidence high
  limit     10/min per attr:user
  verdict   352 of 9,870 keys were denied.�[31m
  evidence  one
            two
  advice    Raise the limit.

logins: one abuser since 00:00:00, confidence medium
  limit     5/min per ip
  verdict   ip=198.18.0.2 has 97 % of the denials.

other rules: 2 fit, 1 without a verdict yet

`)
	if !strings.Contains(status, "store      memory: available") {
		t.Errorf("the status is %s", status)
	}
}

// The exit code is 0 unless a rule needs a change or the service is degraded: an abuser is no fault of the rule.
func TestDoctorFindings(t *testing.T) {
	for _, c := range []struct {
		rules, status string
		found         bool
	}{{fitting, healthy, false}, {abused, healthy, false}, {strict, healthy, true}, {fitting, degraded, true}, {strict, degraded, true}} {
		if _, err := diagnosed(t, `{"rules":[`+c.rules+`]}`, c.status); errors.Is(err, term.ErrFindings) != c.found || err != nil && !c.found {
			t.Errorf("%s, %s: %v", c.rules, c.status, err)
		}
	}
}
