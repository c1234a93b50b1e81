package main

import (
	"net/http"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/operate/admincli"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

func statusCommand() *cobra.Command {
	var live remoteFlags
	var out term.Output
	var listRules bool
	c := &cobra.Command{
		Use:   "status",
		Short: "Show how the service is",
		Long: "Show on one screen how a running service is: its store, why it is not ready, its rules and when they were read,\n" +
			"what is suspended, and where it listens. With --rules, its rules and what became of requests since it started.\n\n" +
			"It ends with 1 if the store does not answer, the rule files cannot be used or /readyz responds with 503.",
		Example:           "  sluice status\n  sluice status --rules\n  sluice status -o json",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			if listRules {
				return call(c, &live, &out, http.MethodGet, "/v1/rules", nil, admincli.WriteRules)
			}
			return call(c, &live, &out, http.MethodGet, "/v1/status", nil, admincli.WriteStatus)
		},
	}
	out.AddFlag(c)
	c.Flags().BoolVar(&listRules, "rules", false, "list the rules, and what was allowed and denied by each")
	live.adminFlags(c)
	return c
}
