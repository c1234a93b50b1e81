package adminapi

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
	"github.com/sluiceproject/sluice/cmd/internal/rulework/sample"
	"github.com/sluiceproject/sluice/rules"
)

var (
	failModes  = [...]string{sluice.FailLocal: "local", sluice.FailOpen: "open", sluice.FailClosed: "closed"}
	accuracies = [...]string{sluice.AccuracyExact: "exact", sluice.AccuracyLease: "lease", sluice.AccuracyEventual: "eventual"}
)

func (a *api) listRules(http.ResponseWriter, *http.Request) (any, error) {
	out := adminmsg.Rules{Rules: []adminmsg.Rule{}}
	set := a.Rules()
	suspended, counts := a.Limiter.SuspendedRules(), a.counts()
	var verdicts map[string]adminmsg.Verdict
	if a.Verdicts != nil {
		verdicts = a.Verdicts()
	}
	for _, c := range set.ActiveRules() {
		first := c.Rules[0]
		state := adminmsg.Rule{
			Name: c.Name, Format: "sluice", File: c.Pos.File, Line: c.Pos.Line, Per: append([]string{}, c.Per...),
			Shadow: first.Shadow, OnFailure: failModes[first.OnFailure], Accuracy: accuracies[first.Accuracy],
			Suspended: slices.Contains(suspended, c.Name),
		}
		if c.Domain != "" {
			state.Format = "envoy"
		}
		for _, r := range c.Rules {
			l := &r.Limit
			state.Limits = append(state.Limits, adminmsg.RuleLimit{
				Bucket: r.Name, Limit: l.String(), Count: l.Count, WindowSeconds: l.Window.Seconds(), Algorithm: l.Algorithm.String(), Burst: l.Max(),
			})
			addCounts(&state.Counts, counts[r.Name])
		}
		if v, ok := verdicts[c.Name]; ok {
			v.Evidence = append([]string{}, v.Evidence...)
			state.Verdict = &v
		}
		out.Rules = append(out.Rules, state)
	}
	if a.Digest != nil {
		out.Digest = a.Digest()
	}
	return out, nil
}

// addCounts adds the counts n of one limit to those of its rule. Each request is decided by all limits of the rule, so the
// counts of limits overlap: the rule's denials are at least the largest number of denials of one limit, and its requests
// the largest number of decisions.
func addCounts(c *adminmsg.Counts, n adminmsg.Counts) {
	requests := max(c.Allowed+c.Denied, n.Allowed+n.Denied)
	c.Denied = max(c.Denied, n.Denied)
	c.Allowed = requests - c.Denied
	c.ShadowDenied = max(c.ShadowDenied, n.ShadowDenied)
	c.NearLimit = max(c.NearLimit, n.NearLimit)
}

func (a *api) counts() map[string]adminmsg.Counts {
	if a.Counts == nil {
		return nil
	}
	return a.Counts()
}

// explainRequest explains the outcome of a request and returns the state of its limits. It changes nothing.
func (a *api) explainRequest(_ http.ResponseWriter, r *http.Request) (any, error) {
	var in adminmsg.Explain
	if err := readJSON(r, &in); err != nil {
		return nil, err
	}
	set := a.Rules()
	switch {
	case in.Cost < 0 || in.Cost > sluice.MaxCost:
		return nil, problemf(http.StatusBadRequest, "cost %d: write a number from 1 to 2^50, or leave it out", in.Cost)
	case (in.Request == nil) == (in.Domain == ""), in.Domain == "" && in.Descriptors != nil:
		return nil, problemf(http.StatusBadRequest, `write {"request": {…}}, or {"domain": …, "descriptors": [[{"key": …, "value": …}]]}`)
	case in.Request != nil:
		h, err := sampleOf(in.Request)
		if err != nil {
			return nil, err
		}
		return a.explain.HTTP(r.Context(), set, h, in.Cost, false)
	}
	each := make([][]rules.Entry, len(in.Descriptors))
	for i := range each {
		each[i] = entries(in.Descriptors[i])
	}
	return a.explain.Domain(r.Context(), set, sample.NewDescriptors(in.Domain, each, in.Cost))
}

// suspend suspends rules in this instance.
func (a *api) suspend(_ http.ResponseWriter, r *http.Request) (any, error) {
	return a.kill(r, "suspend", a.Limiter.Suspend, a.Rules().RuleNames())
}

// resume resumes rules, including suspended ones that no longer exist.
func (a *api) resume(_ http.ResponseWriter, r *http.Request) (any, error) {
	return a.kill(r, "resume", a.Limiter.Resume, append(a.Limiter.SuspendedRules(), a.Rules().RuleNames()...))
}

func (a *api) kill(r *http.Request, what string, do func(...string), known []string) (any, error) {
	var in adminmsg.RuleNames
	err := readJSON(r, &in)
	if err == nil && len(in.Rules) == 0 {
		err = problemf(http.StatusBadRequest, `rules missing: write {"rules": ["name"]}`)
	}
	var names, unknown []string
	for _, name := range in.Rules {
		if slices.Contains(known, name) {
			names = append(names, name)
			continue
		}
		unknown = append(unknown, name)
		if err == nil {
			err = fmt.Errorf("%w: %q", rules.ErrUnknownRule, name)
		}
	}
	if err == nil {
		do(in.Rules...)
	}
	a.audit(r, what, strings.Join(names, "; "), err, unknownRules(err, unknown...)...)
	if err != nil {
		return nil, err
	}
	return adminmsg.Suspended{
		Suspended: append([]string{}, a.Limiter.SuspendedRules()...),
		Note:      "applies to this instance until its process exits; other instances are not changed",
	}, nil
}

// reload reloads the rule files.
func (a *api) reload(_ http.ResponseWriter, r *http.Request) (any, error) {
	if err := readNothing(r); err != nil {
		a.audit(r, "reload", "", err)
		return nil, err
	}
	if a.Reload == nil {
		err := problemf(http.StatusConflict, "no rule files to reload, the rules are built in: set rules.paths in the configuration")
		a.audit(r, "reload", "", err)
		return nil, err
	}
	digest, changed, err := a.Reload()
	if err != nil {
		p := problemf(http.StatusUnprocessableEntity, "rule files are invalid, the previous rule set stays in use: %v", err)
		p.Errors = ruleErrors(err)
		a.audit(r, "reload", "", p, "errors", len(p.Errors))
		return nil, p
	}
	a.audit(r, "reload", "", nil, "rules_digest", digest, "changed", changed)
	out := adminmsg.Reloaded{Digest: digest, Changed: changed, RestartNeeded: []string{}}
	if a.RestartNeeded != nil {
		settings, err := a.RestartNeeded()
		out.RestartNeeded = append(out.RestartNeeded, settings...)
		if err != nil {
			out.ConfigError = err.Error()
		}
	}
	return out, nil
}

// ruleErrors lists the errors that err joins.
func ruleErrors(err error) []adminmsg.RuleError {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []adminmsg.RuleError
		for _, e := range joined.Unwrap() {
			all = append(all, ruleErrors(e)...)
		}
		return all
	}
	var f *rules.Error
	if errors.As(err, &f) {
		return []adminmsg.RuleError{{File: f.Pos.File, Line: f.Pos.Line, Column: f.Pos.Column, Rule: f.Rule, Message: f.Msg}}
	}
	return []adminmsg.RuleError{{Message: err.Error()}}
}

var levels = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}

// logLevel sets the log level.
func (a *api) logLevel(_ http.ResponseWriter, r *http.Request) (any, error) {
	var in adminmsg.LogLevel
	err := readJSON(r, &in)
	level, known := levels[in.Level]
	if err == nil && !known {
		err = problemf(http.StatusBadRequest, "level: %.40q: write debug, info, warn or error", in.Level)
	}
	if err != nil {
		a.audit(r, "log level", "", err)
		return nil, err
	}
	a.Level.Set(level)
	a.audit(r, "log level", "", nil, "level", in.Level)
	return in, nil
}

func levelName(l slog.Level) string { return strings.ToLower(l.String()) }
