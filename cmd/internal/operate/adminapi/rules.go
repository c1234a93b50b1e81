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
	for _, c := range set.ActiveRules() {
		first := c.Rules[0]
		state := adminmsg.Rule{
			Name: c.Name, Kind: "native", File: c.Pos.File, Line: c.Pos.Line, Per: append([]string{}, c.Per...),
			Shadow: first.Shadow, OnFailure: failModes[first.OnFailure], Accuracy: accuracies[first.Accuracy],
			Suspended: slices.Contains(suspended, c.Name),
		}
		if c.Domain != "" {
			state.Kind = "envoy"
		}
		for _, r := range c.Rules {
			l := &r.Limit
			state.Limits = append(state.Limits, adminmsg.RuleLimit{
				Bucket: r.Name, Limit: l.String(), Count: l.Count, WindowSeconds: l.Window.Seconds(), Algorithm: l.Algorithm.String(), Burst: l.Max(),
			})
			addCounts(&state.Counts, counts[r.Name])
		}
		out.Rules = append(out.Rules, state)
	}
	if a.Digest != nil {
		out.Digest = a.Digest()
	}
	return out, nil
}

// addCounts counts one more limit of a rule. Each request is decided by all of them, and denied by one if by any: so the
// limit that denied most, and the one that decided most, tell most of the rule.
func addCounts(c *adminmsg.Counts, n adminmsg.Counts) {
	asked := max(c.Allowed+c.Denied, n.Allowed+n.Denied)
	c.Denied = max(c.Denied, n.Denied)
	c.Allowed = asked - c.Denied
	c.ShadowDenied = max(c.ShadowDenied, n.ShadowDenied)
	c.NearLimit = max(c.NearLimit, n.NearLimit)
}

func (a *api) counts() map[string]adminmsg.Counts {
	if a.Counts == nil {
		return nil
	}
	return a.Counts()
}

// explainRequest says what the rules make of a request, and what is left of its limits. It changes nothing.
func (a *api) explainRequest(_ http.ResponseWriter, r *http.Request) (any, error) {
	var in adminmsg.Explain
	if err := readJSON(r, &in); err != nil {
		return nil, err
	}
	set := a.Rules()
	switch {
	case in.Cost < 0 || in.Cost > sluice.MaxCost:
		return nil, problemf(http.StatusBadRequest, "cost %d: write a number of at least 1, or leave it out", in.Cost)
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

// suspend switches rules off in this process.
func (a *api) suspend(_ http.ResponseWriter, r *http.Request) (any, error) {
	return a.kill(r, "suspend", a.Limiter.Suspend, a.Rules().RuleNames())
}

// resume switches them on again, also those whose rules have gone meanwhile.
func (a *api) resume(_ http.ResponseWriter, r *http.Request) (any, error) {
	return a.kill(r, "resume", a.Limiter.Resume, append(a.Limiter.SuspendedRules(), a.Rules().RuleNames()...))
}

func (a *api) kill(r *http.Request, what string, do func(...string), known []string) (any, error) {
	var in adminmsg.RuleNames
	err := readJSON(r, &in)
	if err == nil && len(in.Rules) == 0 {
		err = problemf(http.StatusBadRequest, `say which rules: {"rules": ["name"]}`)
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
		Note:      "this process only, and until it ends: other instances of the service go on as before",
	}, nil
}

// reload reads the rules again.
func (a *api) reload(_ http.ResponseWriter, r *http.Request) (any, error) {
	if a.Reload == nil {
		err := problemf(http.StatusConflict, "the rules are built in: name files in rules.paths of the configuration")
		a.audit(r, "reload", "", err)
		return nil, err
	}
	digest, changed, err := a.Reload()
	if err != nil {
		p := problemf(http.StatusUnprocessableEntity, "the rules cannot be used, and the last good ones stay: %v", err)
		p.Faults = faultsOf(err)
		a.audit(r, "reload", "", p, "faults", len(p.Faults))
		return nil, p
	}
	a.audit(r, "reload", "", nil, "digest", digest, "changed", changed)
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

// faultsOf lists what errors are joined of.
func faultsOf(err error) []adminmsg.Fault {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []adminmsg.Fault
		for _, e := range joined.Unwrap() {
			all = append(all, faultsOf(e)...)
		}
		return all
	}
	var f *rules.Error
	if errors.As(err, &f) {
		return []adminmsg.Fault{{File: f.Pos.File, Line: f.Pos.Line, Column: f.Pos.Column, Rule: f.Rule, Message: f.Msg}}
	}
	return []adminmsg.Fault{{Message: err.Error()}}
}

var levels = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}

// logLevel changes what is logged.
func (a *api) logLevel(_ http.ResponseWriter, r *http.Request) (any, error) {
	var in adminmsg.LogLevel
	err := readJSON(r, &in)
	level, known := levels[in.Level]
	if err == nil && !known {
		err = problemf(http.StatusBadRequest, "level: write debug, info, warn or error")
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
