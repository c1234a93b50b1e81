package main

import (
	"net/http"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/operate/admincli"
)

const statusLong = `Show the state of a running service: readiness, the store and recent changes of its circuit breakers, the rules and
when they were loaded, suspended rules, and the listeners. With --rules, list the rules and their allowed and denied
requests since the service started.

Exit codes: 0 if the service is healthy; 1 if the store or a shard of it is unavailable, the rule files have errors, a rule
is suspended, or /readyz responds with 503; 2 if the service cannot be reached.`

const statusExample = `  sluice status
  sluice status --rules
  sluice status -o json`

func statusCommand() *cobra.Command {
	var live remoteFlags
	var listRules bool
	c := withoutArguments("status", "Show the state of a running service", statusLong, statusExample, func(c *cobra.Command) error {
		if listRules {
			return call(c, &live, http.MethodGet, "/v1/rules", nil, admincli.WriteRules)
		}
		return call(c, &live, http.MethodGet, "/v1/status", nil, admincli.WriteStatus)
	})
	c.ValidArgsFunction = cobra.NoFileCompletions
	c.Flags().BoolVar(&listRules, "rules", false, "list the rules and their allowed and denied requests")
	live.adminFlags(c)
	return c
}
