package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/envoy/envoyratelimit"
)

// ratelimitName is the reference's name of its program. Under that name this one does the same.
const ratelimitName = "ratelimit"

const ratelimitLong = `Serve Envoy in the place of envoyproxy/ratelimit.

It is configured by that service's environment variables, reads its rule files, or takes rules from a
control plane by xDS, and gives its answers and statistics. Run under the name ratelimit the program does
the same. docs/migrate-from-envoy-ratelimit.md has every variable.`

const ratelimitExample = `  REDIS_SOCKET_TYPE=tcp REDIS_URL=localhost:6379 USE_STATSD=false RUNTIME_ROOT=/data sluice ratelimit
  BACKEND_TYPE=memory USE_STATSD=false RUNTIME_ROOT=examples/rules RUNTIME_APPDIRECTORY=envoy sluice ratelimit`

func ratelimitCommand() *cobra.Command {
	return withoutArguments(ratelimitName, "Serve Envoy in the place of envoyproxy/ratelimit",
		ratelimitLong, ratelimitExample, func(c *cobra.Command) error {
			return envoyratelimit.Run(c.Context(), os.Environ(), c.ErrOrStderr())
		})
}
