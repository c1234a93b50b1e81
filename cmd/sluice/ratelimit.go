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

// ratelimitName is the program name of envoyproxy/ratelimit. A program with this name runs the ratelimit command.
const ratelimitName = "ratelimit"

const ratelimitLong = `Run a drop-in replacement for envoyproxy/ratelimit.

The command is configured by the environment variables of that service, reads its rule files or receives rules from an
xDS control plane, and returns the same responses and statistics. A program named ratelimit, such as a link to sluice,
runs this command too. docs/envoy-compatibility.md lists all variables.

With --check, no service is started. The command reads the rule files that the variables name, in subdirectories and with
any file name too. It lists errors, because of which the service would not use the files, and warnings about valid but
probably unintended settings. Exit codes: 0 if there is nothing to report about the files, 1 if there are errors or
warnings, 2 if a file cannot be read or a variable is invalid. Warnings about variables are printed only.`

const ratelimitExample = `  REDIS_SOCKET_TYPE=tcp REDIS_URL=localhost:6379 USE_STATSD=false RUNTIME_ROOT=/data sluice ratelimit
  BACKEND_TYPE=memory USE_STATSD=false RUNTIME_ROOT=examples/rules RUNTIME_APPDIRECTORY=envoy sluice ratelimit
  RUNTIME_ROOT=/data sluice ratelimit --check`

func ratelimitCommand() *cobra.Command {
	var (
		checks   bool
		warnings string
	)
	c := withoutArguments(ratelimitName, "Run a drop-in replacement for envoyproxy/ratelimit",
		ratelimitLong, ratelimitExample, func(c *cobra.Command) error {
			switch {
			case checks:
				return checkRatelimit(c, warnings)
			case c.Flags().Changed("warnings"):
				return errors.New("--warnings needs --check")
			}
			return envoyratelimit.Run(c.Context(), os.Environ(), c.ErrOrStderr())
		})
	c.Flags().BoolVar(&checks, "check", false, "check the rule files that the variables name, and exit")
	addWarningsFlag(c, &warnings)
	return c
}

// checkRatelimit checks the rule files of the service. Warnings about variables do not change the exit code, because the
// variables of a service that is replaced may stay.
func checkRatelimit(c *cobra.Command, warnings string) error {
	if err := checkWarnings(warnings); err != nil {
		return err
	}
	files, err := envoyratelimit.ReadRuleFiles(os.Environ())
	if err != nil {
		return err
	}
	if warnings == "off" {
		files.Warnings = nil
	}
	for _, w := range files.Warnings {
		fmt.Fprintln(c.ErrOrStderr(), "warning:", w)
	}
	report, err := check.Rules(c.Context(), check.Options{Warn: warnings != "off"}, files.Files, files.Load)
	if err != nil {
		return err
	}
	return writeResult(c, new(term.Output), report, report.Write, report.Fails(warnings == "error"))
}
