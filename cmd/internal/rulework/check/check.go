package check

import (
	"context"
	"errors"
	"path/filepath"
	"slices"

	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/cmd/internal/rulework/describe"
	"github.com/sluiceproject/sluice/cmd/internal/rulework/fileerrors"
	"github.com/sluiceproject/sluice/cmd/internal/rulework/sources"
	"github.com/sluiceproject/sluice/internal/strictyaml"
	"github.com/sluiceproject/sluice/rulefile"
	"github.com/sluiceproject/sluice/rules"
)

// Report is the output of check. Its fields are stable for programs.
type Report struct {
	OK    bool     `json:"ok"`
	Files []string `json:"files"`
	// Configurations are the names of files that configure sluice serve.
	Configurations []string `json:"configurations,omitempty"`
	// Accounts are the names of files that list API keys or users.
	Accounts []string `json:"accounts,omitempty"`

	Digest   string                  `json:"digest,omitempty"`
	Rules    []ruleSummary           `json:"rules"`
	Domains  []domainSummary         `json:"envoy_domains"`
	Findings []fileerrors.Diagnostic `json:"findings"`

	keeps bool                    // a gateway with a queue is configured
	here  []fileerrors.Diagnostic // why sluice serve would not start on this host
	named []rulefile.File         // rule files named by configurations
}

type ruleSummary struct {
	Name        string          `json:"name"`
	File        string          `json:"file"`
	Line        int             `json:"line"`
	Matches     string          `json:"matches"`
	Per         []string        `json:"per"`
	Limit       string          `json:"limit"`
	Mode        string          `json:"mode"` // "enforced", "shadow" or "disabled"
	Bounds      []accuracyBound `json:"bounds,omitempty"`
	Settles     []settleBound   `json:"settle_bounds,omitempty"` // of a rule with settle
	Concurrency bool            `json:"concurrency,omitempty"`   // some limit is on what is in flight
}

type domainSummary struct {
	Name   string `json:"name"`
	Limits int    `json:"limits"`
}

// Options configures a check. Its functions check files and configurations like the service, which this package does
// not import.
type Options struct {
	Rules rulefile.Options
	Warn  bool // also report warnings

	IsAccounts     func(data []byte) bool
	Accounts       func(name string, data []byte) error
	Authentication func(*config.Authentication) error
	// Start returns why sluice serve would not start on this host, and its warnings.
	Start func(*config.Config) (warnings []error, err error)
}

// Files checks the files of paths. The error is about files that cannot be read.
func Files(ctx context.Context, o Options, paths []string) (*Report, error) {
	sources, err := sources.Read(ctx, paths)
	if err != nil {
		return nil, err
	}
	return o.report(ctx, sources, func(r *Report) (*rulefile.LoadResult, error) { return r.load(&o, sources) })
}

// Rules checks rule files that load compiles. Of the options only Warn applies.
func Rules(ctx context.Context, o Options, files []rulefile.File, load func() (*rulefile.LoadResult, error)) (*Report, error) {
	o.IsAccounts = func([]byte) bool { return false }
	return o.report(ctx, files, func(*Report) (*rulefile.LoadResult, error) { return load() })
}

func (o *Options) report(ctx context.Context, sources []rulefile.File, load func(*Report) (*rulefile.LoadResult, error)) (*Report, error) {
	report := &Report{Files: []string{}, Rules: []ruleSummary{}, Domains: []domainSummary{}, Findings: []fileerrors.Diagnostic{}}
	for _, s := range sources {
		report.Files = append(report.Files, s.Name)
	}
	loaded, err := load(report)
	found, err := fileerrors.Split(err)
	if err != nil {
		return nil, err
	}
	report.Findings = append(report.Findings, found...)
	if o.Warn {
		report.Findings = append(report.Findings, report.here...)
	}
	sources = append(sources, report.named...)
	if loaded != nil {
		report.Digest = loaded.Digest
		report.summarize(loaded.Set)
		if o.Warn {
			if err := report.warn(ctx, loaded.Set); err != nil {
				return nil, err
			}
		}
	}
	sources = slices.DeleteFunc(sources, func(s rulefile.File) bool { return o.IsAccounts(s.Data) }) // their contents must not be shown
	fileerrors.AddLines(report.Findings, sources)
	report.OK = len(report.Findings) == 0
	return report, nil
}

// load compiles the rules among the sources, and those named by service configurations among them. The result is nil if
// there are none.
func (r *Report) load(o *Options, sources []rulefile.File) (*rulefile.LoadResult, error) {
	options := o.Rules
	var ruleSources []rulefile.File
	var found []error
	for _, s := range sources {
		if config.IsEmpty(s.Data) { // the kind of file is unknown
			found = append(found, &rules.Error{Pos: rules.Position{File: s.Name, Line: 1, Column: 1}, Msg: "the file is empty: write rules: and a list of rules below it, " +
				"or rules: [] for no rules; in a configuration file write settings, or {} for the defaults"})
			continue
		}
		if n := testsOf(s.Data); n != nil {
			found = append(found, &rules.Error{Pos: rules.Position{File: s.Name, Line: n.Line, Column: n.Column}, Msg: "this is a test file: run sluice test " + s.Name})
			continue
		}
		if !config.IsServiceConfig(s.Data) {
			if o.IsAccounts(s.Data) {
				r.Accounts = append(r.Accounts, s.Name)
				found = append(found, o.Accounts(s.Name, s.Data))
			} else {
				ruleSources = append(ruleSources, s)
			}
			continue
		}
		r.Configurations = append(r.Configurations, s.Name)
		cfg, broken := config.Read(s.Name, s.Data)
		found = append(found, broken)
		if err := authentication(o, &cfg); err != nil {
			found = append(found, inFile(s, err)...)
		} else if broken == nil {
			r.checkStart(o, s, &cfg)
		}
		r.keeps = r.keeps || cfg.Gateway.Address != config.Off && cfg.Queue.On()
		if len(cfg.Rules.Paths) > 0 {
			named, err := rulefile.ReadFiles(cfg.Rules.Paths...)
			found = append(found, ofSetting(s, "rules.paths", err)...)
			ruleSources, r.named = append(ruleSources, named...), append(r.named, named...)
			options.Incomplete = options.Incomplete || err != nil
		}
		options.MergeDomains = options.MergeDomains || cfg.Rules.MergeDomains
		options.ChargeDenied = options.ChargeDenied || cfg.Rules.ChargeDenied
	}
	if len(ruleSources) == 0 {
		return nil, errors.Join(found...)
	}
	loaded, err := rulefile.LoadFiles(options, eachOnce(ruleSources)...)
	if options.Incomplete {
		loaded = nil // it lacks rules
	}
	if loaded != nil {
		r.Files = slices.Concat(r.Configurations, r.Accounts)
		for _, s := range loaded.Files {
			r.Files = append(r.Files, s.Name)
		}
	}
	return loaded, errors.Join(append(found, err)...)
}

// testsOf returns the key that shows that a file is a test file, or nil if it is not.
func testsOf(data []byte) *strictyaml.Node {
	root, _ := strictyaml.Parse(data)
	if root == nil {
		return nil
	}
	for i := range root.Fields {
		if root.Fields[i].Key.Text == "tests" {
			return root.Fields[i].Key
		}
	}
	return nil
}

// authentication checks the accounts that a configuration names, if that part of it has no errors.
func authentication(o *Options, cfg *config.Config) error {
	if !cfg.Sound("authentication") {
		return nil
	}
	return o.Authentication(&cfg.Authentication)
}

// checkStart reports as warnings why sluice serve would not start on this host. These are not errors of the file, which
// may be checked on another host or before the files that it names are installed.
func (r *Report) checkStart(o *Options, s rulefile.File, cfg *config.Config) {
	warn := func(before string, err error) {
		r.here = append(r.here, fileerrors.New("warning", placeInConfig(s.Name, s.Data, err.Error()), "", before+err.Error()))
	}
	warnings, err := o.Start(cfg)
	for _, err := range warnings {
		warn("", err)
	}
	for _, err := range fileerrors.Each(err) {
		warn("sluice serve would not start on this host: ", err)
	}
}

// eachOnce removes duplicate files: a configuration may name rule files that are also arguments.
func eachOnce(sources []rulefile.File) (once []rulefile.File) {
	seen := make(map[string]bool)
	for _, s := range sources {
		if name := filepath.Clean(s.Name); !seen[name] {
			seen[name] = true
			once = append(once, s)
		}
	}
	return once
}

// inFile gives errors without a position the position of their setting in the configuration.
func inFile(s rulefile.File, err error) (all []error) {
	return ofSetting(s, "authentication", err)
}

// ofSetting gives errors without a position, and errors about a whole file that setting names, the position of the setting in
// the configuration.
func ofSetting(s rulefile.File, setting string, err error) (all []error) {
	for _, e := range fileerrors.Each(err) {
		switch found, _ := fileerrors.Split(e); {
		case len(found) == 1 && found[0].Line == 0 && found[0].File != "":
			msg := setting + ": " + found[0].File + ": " + found[0].Message
			e = &rules.Error{Pos: placeInConfig(s.Name, s.Data, msg), Msg: msg}
		case len(found) == 0:
			e = &rules.Error{Pos: placeInConfig(s.Name, s.Data, e.Error()), Msg: e.Error()}
		}
		all = append(all, e)
	}
	return all
}

// warn adds warnings.
func (r *Report) warn(ctx context.Context, set *rules.Set) error {
	for _, w := range set.Warnings() {
		r.Findings = append(r.Findings, fileerrors.New("warning", w.Pos, w.Rule, w.Msg))
	}
	r.warnOfQueues(set)
	found, err := selftest(ctx, set)
	r.Findings = append(r.Findings, found...)
	return err
}

// warnOfQueues warns of rules with on_limit: queue if no configuration has a queue. Without a configuration it is
// unknown: the rules may belong to a program.
func (r *Report) warnOfQueues(set *rules.Set) {
	if r.keeps || len(r.Configurations) == 0 {
		return
	}
	cfg := set.Config()
	for i := range cfg.Rules {
		if rule := &cfg.Rules[i]; rule.OnLimit == rules.OnLimitQueue {
			r.Findings = append(r.Findings, fileerrors.New("warning", rule.Pos, rule.Name,
				"on_limit: queue needs listeners.gateway.address and the section queue: without them requests over the limit are denied"))
		}
	}
}

func (r *Report) Fails(onWarnings bool) bool {
	for i := range r.Findings {
		if onWarnings || r.Findings[i].Severity == "error" {
			return true
		}
	}
	return false
}

func (r *Report) summarize(set *rules.Set) {
	cfg := set.Config()
	for i := range cfg.Rules {
		rule := &cfg.Rules[i]
		s := ruleSummary{
			Name: rule.Name, File: rule.Pos.File, Line: rule.Pos.Line, Matches: describe.Match(rule),
			Per: []string{}, Limit: describe.Limits(rule), Mode: ruleMode(rule), Bounds: ruleBounds(rule), Settles: settleBounds(rule), Concurrency: limitsConcurrency(rule),
		}
		for _, ref := range rule.Per {
			s.Per = append(s.Per, ref.Name)
		}
		r.Rules = append(r.Rules, s)
	}
	for i := range cfg.Domains {
		d := domainSummary{Name: cfg.Domains[i].Name}
		for _, l := range set.DescriptorLimits(d.Name) {
			d.Limits += len(l.Rules)
		}
		r.Domains = append(r.Domains, d)
	}
}

func ruleMode(r *rules.Rule) string {
	switch {
	case r.Disabled:
		return "disabled"
	case r.Shadow:
		return "shadow"
	}
	return "enforced"
}
