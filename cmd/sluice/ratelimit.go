package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/envoy/envoyratelimit"
	"github.com/sluiceproject/sluice/cmd/internal/rulework/check"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// ratelimitName is the reference's name of its program. Under that name this one does the same.
const ratelimitName = "ratelimit"

const ratelimitLong = `Serve Envoy in the place of envoyproxy/ratelimit.

It is configured by that service's environment variables, reads its rule files, or takes rules from a
control plane by xDS, and gives its answers and statistics. Run under the name ratelimit the program does
the same. docs/migrate-from-envoy-ratelimit.md has every variable.

With --check it starts nothing: it reads the rule files that these variables name, those below and of any
name too, and reports all that the service would refuse, and what is legal and probably not meant. It ends
with 0 if there is nothing to report, 1 if there is, 2 if a file cannot be read or a variable is wrong.`

const ratelimitExample = `  REDIS_SOCKET_TYPE=tcp REDIS_URL=localhost:6379 USE_STATSD=false RUNTIME_ROOT=/data sluice ratelimit
  BACKEND_TYPE=memory USE_STATSD=false RUNTIME_ROOT=examples/rules RUNTIME_APPDIRECTORY=envoy sluice ratelimit
  RUNTIME_ROOT=/data sluice ratelimit --check`

func ratelimitCommand() *cobra.Command {
	var (
		checks   bool
		warnings string
	)
	c := withoutArguments(ratelimitName, "Serve Envoy in the place of envoyproxy/ratelimit",
		ratelimitLong, ratelimitExample, func(c *cobra.Command) error {
			switch {
			case checks:
				return checkRatelimit(c, warnings)
			case c.Flags().Changed("warnings"):
				return errors.New("--warnings is for --check")
			}
			return envoyratelimit.Run(c.Context(), os.Environ(), c.ErrOrStderr())
		})
	c.Flags().BoolVar(&checks, "check", false, "check the rule files that the variables name, and start nothing")
	addWarningsFlag(c, &warnings)
	return c
}

// checkRatelimit checks the rule files of the service. Its warnings about variables do not count.
func checkRatelimit(c *cobra.Command, warnings string) error {
	if err := checkWarnings(warnings); err != nil {
		return err
	}
	files, err := envoyratelimit.ReadRuleFiles(os.Environ())
	if err != nil {
		return err
	}
	for _, w := range files.Warnings {
		fmt.Fprintln(c.ErrOrStderr(), "warning:", w)
	}
	report, err := check.Rules(c.Context(), check.Options{Warn: warnings != "off"}, files.Files, files.Load)
	if err != nil {
		return err
	}
	return writeResult(c, new(term.Output), report, report.Write, report.Fails(warnings == "fail"))
}
