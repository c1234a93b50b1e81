package adminapi

import (
	"context"
	"net/http"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
	"github.com/sluiceproject/sluice/rules"
)

const resetRulePath = "/v1/reset/rule"

// resetRule resets a page of the keys of a rule.
func (a *api) resetRule(_ http.ResponseWriter, r *http.Request) (any, error) {
	var in adminmsg.RuleReset
	if err := readJSON(r, &in); err != nil {
		a.audit(r, "reset rule", "", err)
		return nil, err
	}
	var page sluice.ResetPage
	all, err := a.rulesNamed(a.Rules(), in.Rule)
	if err == nil {
		// Without cancellation, because the audit log would otherwise not match the result if the client disconnects.
		page, err = a.Limiter.ResetRules(context.WithoutCancel(r.Context()), sluice.ResetOptions{Rules: all, PageToken: in.PageToken, DryRun: in.DryRun})
	}
	if err != nil {
		switch p := problemOf(badPageToken(in.PageToken, err)); {
		case p.Status == http.StatusBadRequest:
			err = p
		case p.Status == http.StatusServiceUnavailable && page.Removed > 0:
			err = problemf(p.Status, "the store became unavailable after %d buckets of this page had been removed: send the request again: %v", page.Removed, err)
		case p.Status == http.StatusNotImplemented:
			err = problemf(p.Status, "this store cannot list the keys of a rule: use POST /v1/reset for one key, "+
				"or rename the rule in its file, which starts all its keys from zero")
		}
	}
	if !in.DryRun {
		a.auditRuleReset(r, &in, &page, err)
	}
	if err != nil {
		return nil, err
	}
	out := adminmsg.RuleWasReset{Rule: in.Rule, DryRun: in.DryRun, NextPageToken: page.NextPageToken}
	if page.Removed >= 0 {
		out.Removed = &page.Removed
	}
	return out, nil
}

// auditRuleReset logs a line for each page. Buckets removed before an error stay removed and are logged.
func (a *api) auditRuleReset(r *http.Request, in *adminmsg.RuleReset, page *sluice.ResetPage, err error) {
	unknown := unknownRules(err, in.Rule)
	if unknown != nil {
		a.audit(r, "reset rule", "", err, unknown...)
		return
	}
	more := []any{"last", err == nil && page.NextPageToken == ""}
	if page.Removed >= 0 {
		more = append([]any{"removed", page.Removed}, more...)
	}
	a.audit(r, "reset rule", in.Rule, err, more...)
}

// rulesNamed returns all limits of the rule with this name, or the one limit with it.
func (a *api) rulesNamed(set *rules.Set, name string) ([]*sluice.Rule, error) {
	if name == "" {
		return nil, problemf(http.StatusBadRequest, `rule missing: write {"rule": "name"}`)
	}
	for _, rule := range a.Keyed {
		if rule.Name == name {
			return []*sluice.Rule{rule}, nil
		}
	}
	for _, c := range set.ActiveRules() {
		if c.Name == name {
			return c.Rules, nil
		}
		for _, rule := range c.Rules {
			if rule.Name == name {
				return []*sluice.Rule{rule}, nil
			}
		}
	}
	_, err := set.Buckets(name, nil) // returns the error with a suggestion
	if err == nil {
		err = rules.ErrUnknownRule
	}
	return nil, err
}
