package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/cmd/internal/testenv/rlstest"
)

// A service judges its rules: doctor, the admin API and the metrics say that one is too strict.
func TestDoctor(t *testing.T) {
	p := startServe(t, fmt.Sprintf("rules: {paths: [%q]}", rulesDir(t,
		"  - {key: k, rate_limit: {unit: year, requests_per_unit: 2}}\n  - {key: idle, rate_limit: {unit: year, requests_per_unit: 2}}\n")))
	p.asked(t)
	client := p.client(t)
	for i := range 1200 {
		rlstest.Answer(t.Context(), client, "d", fmt.Sprintf("k=user%d", i%30))
	}
	code, out, _ := sluiceRun(t, "doctor")
	if code != term.ExitFindings {
		t.Errorf("exit %d, want %d", code, term.ExitFindings)
	}
	for _, want := range []string{
		"1 of 2 rules to change\n", "d/k: too strict since ", "30 of 30 keys were denied", "advice    Raise the limit to {rate: ",
		"other rules: 1 without a verdict yet\n", "store      memory: available",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	_, out, _ = sluiceRun(t, "doctor", "-o", "json")
	var got struct {
		Rules  adminmsg.Rules
		Status adminmsg.Status
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || got.Status.Store.Kind != "memory" || len(got.Rules.Rules) != 2 {
		t.Fatalf("%v in %s", err, out)
	}
	if v := got.Rules.Rules[0].Verdict; v == nil || v.Kind != "too_strict" || v.Advice == nil || v.Advice.Rate == "" {
		t.Errorf("the verdict is %+v", v)
	}
	text := p.operate(t, "GET", "/metrics", "").body
	for _, want := range []string{
		`sluice_rule_verdict{rule="d/k",verdict="too_strict"} 1`,
		`sluice_rule_verdict{rule="d/idle",verdict="no_verdict"} 1`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in the metrics", want)
		}
	}
}
