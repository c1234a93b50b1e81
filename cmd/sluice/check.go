package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/cmd/internal/gateway/authn"
	"github.com/sluiceproject/sluice/cmd/internal/rulework/check"
	"github.com/sluiceproject/sluice/cmd/internal/serve"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

const checkLong = `Check rule files, and configuration files of sluice serve with the rule files they name. Files are read as the service
reads them. Without arguments, the rule files of the current directory are checked.

The report lists errors with file, line and column, and warnings: settings that are valid but probably unintended, and
files and directories of a configuration that sluice serve could not use on this host. A self-test charges requests to
every limit, in a temporary memory store, until the limit denies one.

Exit codes: 0 if there is nothing to report, 1 if there are errors or warnings, 2 if a file named as an argument cannot be
read. Unreadable files that a configuration names are reported as errors.`

const checkExample = `  sluice check
  sluice check rules/ -o json
  sluice check --warnings=show rules/posts.yaml   # print warnings, but exit with 0`

func checkCommand() *cobra.Command {
	var (
		out      term.Output
		flags    ruleFlags
		warnings string
	)
	c := newCommand("check [FILE|DIRECTORY]...", "Check rule files and configuration files for errors",
		checkLong, checkExample, func(c *cobra.Command, paths []string) error {
			if err := checkWarnings(warnings); err != nil {
				return err
			}
			report, err := check.Files(c.Context(), check.Options{
				Rules: flags.options(), Warn: warnings != "off", IsAccounts: authn.IsAccountFile, Accounts: authn.Check,
				Authentication: serve.CheckAuthentication, Start: func(cfg *config.Config) ([]error, error) { return serve.Check(cfg, version()) },
			}, orCurrentDir(paths))
			if err != nil {
				return err
			}
			return writeResult(c, &out, report, report.Write, report.Fails(warnings == "error"))
		})
	c.ValidArgsFunction = term.CompleteRules
	out.AddFlag(c)
	flags.flags(c)
	addWarningsFlag(c, &warnings)
	return c
}

func addWarningsFlag(c *cobra.Command, warnings *string) {
	c.Flags().StringVar(warnings, "warnings", "error", "handling of warnings: error (exit code 1), show (print only) or off")
	term.CompleteFlag(c, "warnings", "error", "show", "off")
}

// checkWarnings validates the value of --warnings.
func checkWarnings(warnings string) error {
	if warnings != "error" && warnings != "show" && warnings != "off" {
		return fmt.Errorf("--warnings=%s: write error, show or off", warnings)
	}
	return nil
}
