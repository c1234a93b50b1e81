package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/operate/admincli"
	"github.com/sluiceproject/sluice/cmd/internal/rulework/explain"
	"github.com/sluiceproject/sluice/cmd/internal/rulework/sample"
	"github.com/sluiceproject/sluice/cmd/internal/stores"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// explainFlags are the flags of the explain command.
type explainFlags struct {
	rules    ruleFlags
	request  requestFlags
	live     remoteFlags
	ask      bool // query the running service
	paths    []string
	cost     int64
	domain   string
	snapshot string
	matching bool
}

const explainLong = `Match a request against every rule and show why each rule matches or not, the key it counts by, its limits, and the
outcome of the request. Nothing is charged. Remaining quota is that of an empty store, of a snapshot (--snapshot), or of a
running service (--live). Secrets are masked.

With --domain, the request is a query of an Envoy domain: the arguments are the entries of a descriptor, and a + separates
descriptors.

The exit code is 0 for every outcome of the request.`

const explainExample = `  sluice explain --rules rules/ 'POST /posts' -H 'X-User: ada'
  sluice explain --rules rules/ GET https://api.example.com/users/7 --ip 192.0.2.1 --claim sub=ada
  sluice explain --rules rules/ /search --snapshot /var/lib/sluice/state -o json
  sluice explain --rules rules/ --domain auth auth_type=login
  sluice explain --live 'POST /posts' -H 'X-User: ada'`

func explainCommand() *cobra.Command {
	var f explainFlags
	c := newCommand("explain [METHOD] PATH | --domain DOMAIN KEY=VALUE...", "Show which rules match a request, and its outcome",
		explainLong, explainExample, f.run)
	c.Args = func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return fmt.Errorf("a request is required: write sluice explain 'POST /posts', or sluice explain --domain auth auth_type=login")
		case f.domain == "" && len(args) > 2:
			return fmt.Errorf("%d arguments, at most 2 are accepted: write METHOD and PATH, and headers as -H 'X-User: ada'", len(args))
		}
		return nil
	}
	c.ValidArgsFunction = cobra.NoFileCompletions
	f.rules.flags(c)
	c.Flags().StringArrayVar(&f.paths, "rules", nil, "rule `file` or directory; may be repeated (default: current directory)")
	f.request.flags(c)
	c.Flags().BoolVar(&f.ask, "live", false, "use the rules and the remaining quota of the running service")
	f.live.adminFlags(c)
	costFlag(c, &f.cost)
	c.Flags().StringVar(&f.domain, "domain", "", "Envoy domain; the arguments are descriptor entries")
	c.Flags().StringVar(&f.snapshot, "snapshot", "", "snapshot file of a memory store to read usage from")
	c.Flags().BoolVar(&f.matching, "only-matching", false, "omit rules that do not match")
	_ = c.RegisterFlagCompletionFunc("rules", term.CompleteRules)
	term.CompleteFlag(c, "domain")
	return c
}

func (f *explainFlags) run(c *cobra.Command, args []string) error {
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
