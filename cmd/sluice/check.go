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

const checkLong = `Read rule files, and configurations of sluice serve with the rules they name, as a server would, and report
all that is wrong with them, with the place and the line; then what is legal and probably not meant, and the files and
directories of a configuration that serve could not use on this machine.
Every limit is also spent in a store of its own until it denies. Without arguments the rules of the current directory are checked.

It ends with 0 if there is nothing to report, 1 if there is, 2 if a file of the arguments cannot be read. One that a
configuration names is reported with the rest.`

const checkExample = `  sluice check
  sluice check rules/ -o json
  sluice check --warnings=ok rules/posts.yaml   # warnings are printed and do not count`

func checkCommand() *cobra.Command {
	var (
		out      term.Output
		flags    ruleFlags
		warnings string
	)
	c := newCommand("check [FILE|DIRECTORY]...", "Check rule files and configurations, and show what is in them",
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
			return writeResult(c, &out, report, report.Write, report.Fails(warnings == "fail"))
		})
	c.ValidArgsFunction = term.CompleteRules
	out.AddFlag(c)
	flags.flags(c)
	addWarningsFlag(c, &warnings)
	return c
}

func addWarningsFlag(c *cobra.Command, warnings *string) {
	c.Flags().StringVar(warnings, "warnings", "fail", "what warnings do: fail, ok (printed only) or off")
	term.CompleteFlag(c, "warnings", "fail", "ok", "off")
}

// checkWarnings checks the value of the flag.
func checkWarnings(warnings string) error {
	if warnings != "fail" && warnings != "ok" && warnings != "off" {
		return fmt.Errorf("--warnings=%s: write fail, ok or off", warnings)
	}
	return nil
}
