package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
	"github.com/sluiceproject/sluice/cmd/internal/rulework/explain"
	"github.com/sluiceproject/sluice/cmd/internal/rulework/sample"
	"github.com/sluiceproject/sluice/cmd/internal/stores"
	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/rules"
)

// explainFlags are what explain is asked.
type explainFlags struct {
	out      term.Output
	rules    ruleFlags
	request  requestFlags
	live     liveFlags
	ask      bool // the running service
	paths    []string
	cost     int64
	domain   string
	snapshot string
	matching bool
}

func explainCommand() *cobra.Command {
	var f explainFlags
	c := &cobra.Command{
		Use:   "explain [METHOD] PATH | --domain DOMAIN KEY=VALUE...",
		Short: "Say what the rules make of a request, and why",
		Long: "Match a request against every rule and say why each applies or not, whom it counts for, what its limit is,\n" +
			"and what would become of the request. Nothing is counted. What is left is that of a store in which nothing\n" +
			"was spent, or of a snapshot of one, or with --live of a running service. Secrets are masked.\n\n" +
			"With --domain the request is one to an Envoy domain. Its arguments are the entries of a descriptor; a + stands\n" +
			"between several descriptors.",
		Example: "  sluice explain --rules rules/ 'POST /posts' -H 'X-User: ada'\n" +
			"  sluice explain --rules rules/ GET https://api.example.com/users/7 --ip 192.0.2.1 --claim sub=ada\n" +
			"  sluice explain --rules rules/ /search --snapshot /var/lib/sluice/state -o json\n" +
			"  sluice explain --rules rules/ --domain auth auth_type=login\n" +
			"  sluice explain --live 'POST /posts' -H 'X-User: ada'",
		ValidArgsFunction: cobra.NoFileCompletions,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return fmt.Errorf("say which request: sluice explain 'POST /posts', or --domain auth auth_type=login")
			case f.domain == "" && len(args) > 2:
				return fmt.Errorf("%d arguments: write METHOD and PATH, and headers with -H 'X-User: ada'", len(args))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	f.out.AddFlag(c)
	f.rules.flags(c)
	c.Flags().StringArrayVar(&f.paths, "rules", nil, "rule file or directory; may be repeated (default: here)")
	f.request.flags(c)
	c.Flags().BoolVar(&f.ask, "live", false, "ask the running service: its rules, and what is left there")
	f.live.adminFlags(c)
	c.Flags().Int64Var(&f.cost, "cost", 0, "what the request costs, instead of what the rules say (hits, with --domain)")
	c.Flags().StringVar(&f.domain, "domain", "", "explain a request to this Envoy domain")
	c.Flags().StringVar(&f.snapshot, "snapshot", "", "snapshot of a memory store to look at")
	c.Flags().BoolVar(&f.matching, "matching", false, "leave out rules that do not match")
	_ = c.RegisterFlagCompletionFunc("rules", term.CompleteRules)
	term.CompleteFlag(c, "cost")
	term.CompleteFlag(c, "domain")
	return c
}

func (f *explainFlags) run(c *cobra.Command, args []string) error {
	if f.cost < 0 || f.cost > sluice.MaxCost {
		return fmt.Errorf("--cost %d: write a number of at least 1", f.cost)
	}
	x, err := f.explain(c, args)
	if err != nil {
		return err
	}
	if f.out.IsJSON() {
		return term.WriteJSON(c.OutOrStdout(), x)
	}
	return explain.WriteText(c.OutOrStdout(), x)
}

func (f *explainFlags) explain(c *cobra.Command, args []string) (*explain.Answer, error) {
	if f.ask {
		return f.explainLive(c, args)
	}
	loaded, err := f.rules.load(c.Context(), f.paths)
	if err != nil {
		return nil, err
	}
	explainer, err := newExplainer(f.snapshot)
	if err != nil {
		return nil, err
	}
	if f.domain != "" {
		return f.explainDomain(c, loaded.Set, explainer, args)
	}
	return f.explainHTTP(c, loaded.Set, explainer, args)
}

func (f *explainFlags) explainHTTP(c *cobra.Command, set *rules.Set, p *explain.Explainer, args []string) (*explain.Answer, error) {
	h, err := f.request.request(strings.Join(args, " "))
	if err != nil {
		return nil, err
	}
	return p.HTTP(c.Context(), set, h, f.cost, f.matching)
}

func (f *explainFlags) explainDomain(c *cobra.Command, set *rules.Set, p *explain.Explainer, args []string) (*explain.Answer, error) {
	each, err := descriptors(f.domain, args)
	if err != nil {
		return nil, err
	}
	d := &sample.Descriptors{Domain: f.domain}
	for _, entries := range each {
		d.Each = append(d.Each, rules.Descriptor{Entries: entries, Cost: max(1, f.cost)})
	}
	return p.Domain(c.Context(), set, d)
}

// explainLive has the running service explain.
func (f *explainFlags) explainLive(c *cobra.Command, args []string) (*explain.Answer, error) {
	if len(f.paths) > 0 || f.snapshot != "" {
		return nil, fmt.Errorf("--live asks the service for its own rules and counts: leave out --rules and --snapshot")
	}
	ask := adminmsg.Explain{Domain: f.domain, Cost: f.cost}
	if f.domain == "" {
		var err error
		if ask.Request, err = f.request.asked(strings.Join(args, " ")); err != nil {
			return nil, err
		}
	} else {
		all, err := descriptors(f.domain, args)
		if err != nil {
			return nil, err
		}
		for _, d := range all {
			ask.Descriptors = append(ask.Descriptors, entries(d))
		}
	}
	client, err := f.live.client(c.Context(), c.ErrOrStderr())
	if err != nil {
		return nil, err
	}
	x := new(explain.Answer)
	if _, err := client.Post(c.Context(), "/v1/explain", ask, x); err != nil {
		return nil, f.live.advise(c.Context(), err)
	}
	if f.matching {
		x.Rules = slices.DeleteFunc(x.Rules, func(r explain.Rule) bool { return !r.Matches })
	}
	return x, nil
}

// newExplainer looks at a copy of a store, which nobody else counts in.
func newExplainer(snapshot string) (*explain.Explainer, error) {
	store, err := stores.OpenSnapshot(snapshot)
	if err != nil {
		return nil, err
	}
	limiter, err := sluice.NewWithRules(store, nil)
	return &explain.Explainer{Limiter: limiter}, err
}
