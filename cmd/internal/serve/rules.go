package serve

import (
	"context"
	"log/slog"
	"strings"

	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/cmd/internal/rulework/fileerrors"
	"github.com/sluiceproject/sluice/internal/panics"
	"github.com/sluiceproject/sluice/internal/private"
	"github.com/sluiceproject/sluice/rulefile"
	"github.com/sluiceproject/sluice/rules"
)

// BuiltInRules are the rules of a service without rule files, in Envoy's format.
const BuiltInRules = `domain: demo
descriptors:
  - key: remote_address
    rate_limit: {unit: minute, requests_per_unit: 5}
`

// ruleSource is the source of a service's rules.
type ruleSource struct {
	set     func() *rules.Set
	watcher *rulefile.Watcher // nil: built-in rules
}

// openRules reads the rule files. ruleSource.run reloads them when they change.
func openRules(cfg *config.Config, log *slog.Logger) (*ruleSource, error) {
	o := rulefile.Options{MergeDomains: cfg.Rules.MergeDomains, ChargeDenied: cfg.Rules.ChargeDenied}
	if len(cfg.Rules.Paths) == 0 {
		return builtInRules(o)
	}
	var before *rules.Set
	watcher, err := rulefile.NewWatcher(rulefile.WatchConfig{
		Paths: cfg.Rules.Paths, Options: o, ReloadOnSIGHUP: true,
		OnReload: func(l *rulefile.LoadResult) {
			log.Info("rules reloaded", "rules_digest", l.Digest, "files", len(l.Files))
			if names := restarted(before, l.Set); len(names) > 0 {
				log.Warn("buckets reset: algorithm, refill or sub_windows changed", "rules", strings.Join(names, ", "))
			}
			before = l.Set
			warnOfRules(cfg, l.Set, log)
		},
		OnRecovered: func(l *rulefile.LoadResult) {
			log.Info("rule files valid again", "rules_digest", l.Digest)
		},
		OnError: func(err error) {
			for _, fault := range fileerrors.Each(err) {
				log.Error("rules reload failed: previous rule set stays in use",
					append([]any{"error", fault.Error()}, panics.LogArgs(fault)...)...)
			}
		},
	})
	if err != nil {
		return nil, fileerrors.InRules(err, cfg.Rules.Paths)
	}
	before = watcher.Set()
	warnOfRules(cfg, before, log)
	return &ruleSource{set: watcher.Set, watcher: watcher}, nil
}

func builtInRules(o rulefile.Options) (*ruleSource, error) {
	cfg, err := rulefile.Parse(o, rulefile.File{Name: "demo.yaml", Data: []byte(BuiltInRules)})
	if err != nil {
		return nil, err
	}
	set, err := rules.New(cfg)
	return &ruleSource{set: func() *rules.Set { return set }}, err
}

// run watches the rule files until ctx is done.
func (r *ruleSource) run(ctx context.Context) {
	if r.watcher != nil {
		_ = r.watcher.Run(ctx)
	}
}

func (r *ruleSource) digest() string {
	if r.watcher == nil {
		return "built-in"
	}
	return r.watcher.Status().Digest
}

// restarted returns the names of rules whose counts start from zero, because the new set counts them differently.
func restarted(before, now *rules.Set) (names []string) {
	kinds := make(map[string]string)
	for _, r := range before.LimiterRules() {
		kinds[r.Name] = private.CounterKind(&r.Limit)
	}
	for _, r := range now.LimiterRules() {
		if kind, ok := kinds[r.Name]; ok && kind != private.CounterKind(&r.Limit) {
			names = append(names, r.Name)
		}
	}
	return names
}

// warnOfRules logs a warning if no rule applies to requests of Envoy.
func warnOfRules(cfg *config.Config, set *rules.Set, log *slog.Logger) {
	if len(set.Config().Domains) == 0 && cfg.GRPC.Address != config.Off {
		log.Warn("rule files define no Envoy domain: RLS requests are not limited")
	}
}
