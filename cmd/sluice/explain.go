package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/operate/admincli"
	"github.com/sluiceproject/sluice/cmd/internal/rulework/explain"
	"github.com/sluiceproject/sluice/cmd/internal/rulework/sample"
	"github.com/sluiceproject/sluice/cmd/internal/stores"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// explainFlags are what explain is asked.
type explainFlags struct {
	rules    ruleFlags
	request  requestFlags
	live     remoteFlags
	ask      bool // the running service
	paths    []string
	cost     int64
	domain   string
	snapshot string
	matching bool
}

const explainLong = `Match a request against every rule and say why each applies or not, whom it counts for, what its limit is,
and what would become of the request. Nothing is counted. What is left is that of a store in which nothing
was spent, or of a snapshot of one, or with --live of a running service. Secrets are masked.

With --domain the request is one to an Envoy domain. Its arguments are the entries of a descriptor; a + stands
between several descriptors.

It ends with 0 whatever would become of the request.`

const explainExample = `  sluice explain --rules rules/ 'POST /posts' -H 'X-User: ada'
  sluice explain --rules rules/ GET https://api.example.com/users/7 --ip 192.0.2.1 --claim sub=ada
  sluice explain --rules rules/ /search --snapshot /var/lib/sluice/state -o json
  sluice explain --rules rules/ --domain auth auth_type=login
  sluice explain --live 'POST /posts' -H 'X-User: ada'`

func explainCommand() *cobra.Command {
	var f explainFlags
	c := newCommand("explain [METHOD] PATH | --domain DOMAIN KEY=VALUE...", "Say what the rules make of a request, and why",
		explainLong, explainExample, f.run)
	c.Args = func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return fmt.Errorf("say which request: sluice explain 'POST /posts', or --domain auth auth_type=login")
		case f.domain == "" && len(args) > 2:
			return fmt.Errorf("%d arguments: write METHOD and PATH, and headers with -H 'X-User: ada'", len(args))
		}
		return nil
	}
	c.ValidArgsFunction = cobra.NoFileCompletions
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
	if f.live.out.IsJSON() {
		return term.WriteJSON(c.OutOrStdout(), x)
	}
	return explain.WriteText(c.OutOrStdout(), x)
}

func (f *explainFlags) explain(c *cobra.Command, args []string) (*explain.Result, error) {
	if f.ask {
		return f.explainLive(c, args)
	}
	loaded, err := f.rules.load(c.Context(), f.paths)
	if err != nil {
		return nil, err
	}
	store, err := stores.OpenSnapshot(f.snapshot)
	if err != nil {
		return nil, err
	}
	explainer, err := explain.New(store)
	if err != nil {
		return nil, err
	}
	if f.domain != "" {
		each, err := admincli.Descriptors(f.domain, args)
		if err != nil {
			return nil, err
		}
		return explainer.Domain(c.Context(), loaded.Set, sample.NewDescriptors(f.domain, each, f.cost))
	}
	h, err := f.request.HTTP(strings.Join(args, " "))
	if err != nil {
		return nil, err
	}
	return explainer.HTTP(c.Context(), loaded.Set, h, f.cost, f.matching)
}
