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

func checkCommand() *cobra.Command {
	var (
		out      term.Output
		flags    ruleFlags
		warnings string
	)
	c := &cobra.Command{
		Use:   "check [FILE|DIRECTORY]...",
		Short: "Check rule files and configurations, and show what is in them",
		Long: "Read rule files, and configurations of sluice serve with the rules they name, as a server would, and report\n" +
			"all that is wrong with them, with the place and the line; then what is legal and probably not meant, and the files and\n" +
			"directories of a configuration that serve could not use on this machine.\n" +
			"Every limit is also spent in a store of its own until it denies. Without arguments the rules of the current directory are checked.\n\n" +
			"It ends with 0 if there is nothing to report, 1 if there is, 2 if a file cannot be read.",
		Example: "  sluice check\n" +
			"  sluice check rules/ -o json\n" +
			"  sluice check --warnings=ok rules/posts.yaml   # warnings are printed and do not count",
		ValidArgsFunction: term.CompleteRules,
		RunE: func(c *cobra.Command, paths []string) error {
			if warnings != "fail" && warnings != "ok" && warnings != "off" {
				return fmt.Errorf("--warnings=%s: write fail, ok or off", warnings)
			}
			report, err := check.Files(c.Context(), check.Options{
				Rules: flags.options(), Warn: warnings != "off", IsAccounts: authn.IsAccountFile, Accounts: authn.Check,
				Authentication: serve.CheckAuthentication, Start: func(cfg *config.Config) ([]error, error) { return serve.Check(cfg, version()) },
			}, orCurrentDir(paths))
			if err != nil {
				return err
			}
			if out.IsJSON() {
				err = term.WriteJSON(c.OutOrStdout(), report)
			} else {
				err = report.Write(c.OutOrStdout())
			}
			if err == nil && report.Fails(warnings == "fail") {
				return term.ErrFindings
			}
			return err
		},
	}
	out.AddFlag(c)
	flags.flags(c)
	c.Flags().StringVar(&warnings, "warnings", "fail", "what warnings do: fail, ok (printed only) or off")
	term.CompleteFlag(c, "warnings", "fail", "ok", "off")
	return c
}
