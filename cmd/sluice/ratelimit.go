package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/envoy/envoyratelimit"
)

// ratelimitName is the reference's name of its program. Under that name this one does the same.
const ratelimitName = "ratelimit"

const ratelimitExample = `  REDIS_SOCKET_TYPE=tcp REDIS_URL=localhost:6379 USE_STATSD=false RUNTIME_ROOT=/data sluice ratelimit
  BACKEND_TYPE=memory USE_STATSD=false RUNTIME_ROOT=examples/rules RUNTIME_APPDIRECTORY=envoy sluice ratelimit`

func ratelimitCommand() *cobra.Command {
	return &cobra.Command{
		Use:   ratelimitName,
		Short: "Serve Envoy in the place of envoyproxy/ratelimit",
		Long: "Serve Envoy in the place of envoyproxy/ratelimit.\n\n" +
			"It is configured by that service's environment variables, reads its rule files, or takes rules from a\n" +
			"control plane by xDS, and gives its answers and statistics. Run under the name ratelimit the program does\n" +
			"the same. docs/migrate-from-envoy-ratelimit.md has every variable.",
		Example: ratelimitExample,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return envoyratelimit.Run(c.Context(), os.Environ(), c.ErrOrStderr())
		},
	}
}
