package main

import (
	"net/http"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/operate/admincli"
)

const statusLong = `Show on one screen how a running service is: its store and the last openings and closings of circuit breakers, why
it is not ready, its rules and when they were read, suspended rules, and where it listens. With --rules, its rules and
their counts since it started.

It ends with 0 if all is fine; with 1 if the store or a shard of it is unavailable, the rule files cannot be used, a rule
is suspended, or /readyz responds with 503; and with 2 if the service cannot be asked.`

const statusExample = `  sluice status
  sluice status --rules
  sluice status -o json`

func statusCommand() *cobra.Command {
	var live remoteFlags
	var listRules bool
	c := withoutArguments("status", "Show how the service is", statusLong, statusExample, func(c *cobra.Command) error {
		if listRules {
			return call(c, &live, http.MethodGet, "/v1/rules", nil, admincli.WriteRules)
		}
		return call(c, &live, http.MethodGet, "/v1/status", nil, admincli.WriteStatus)
	})
	c.ValidArgsFunction = cobra.NoFileCompletions
	c.Flags().BoolVar(&listRules, "rules", false, "list the rules, and what was allowed and denied by each")
	live.adminFlags(c)
	return c
}
