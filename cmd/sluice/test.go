package main

import (
	"fmt"
	"regexp"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/rulework/ruletest"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

func testCommand() *cobra.Command {
	var (
		out     term.Output
		flags   ruleFlags
		verbose bool
		pattern string
	)
	c := &cobra.Command{
		Use:   "test [FILE|DIRECTORY]...",
		Short: "Run the tests that stand beside the rules",
		Long: "Run the tests in files named *_test.yaml: requests at times, and what must become of each. They go through\n" +
			"the same code as in a server, on a clock of their own, so that a week's quota is tested in no time.\n" +
			"Without arguments the tests of the current directory are run.\n\n" + ruletest.Format + "\n" +
			"It ends with 0 if all tests pass, 1 if one fails, 2 if there is none or a file cannot be read.",
		Example: "  sluice test\n" +
			"  sluice test -v --run 'each user' rules/\n" +
			"  sluice test rules/posts_test.yaml -o json",
		ValidArgsFunction: term.CompleteRules,
		RunE: func(c *cobra.Command, paths []string) error {
			wanted, err := regexp.Compile(pattern)
			if err != nil {
				return fmt.Errorf("--run: %w", err)
			}
			files, err := ruletest.Load(flags.options(), orCurrentDir(paths)...)
			if err != nil {
				return ruletest.Broken(err)
			}
			report, err := ruletest.RunFiles(c.Context(), files, wanted)
			if err != nil {
				return err
			}
			if out.IsJSON() {
				err = term.WriteJSON(c.OutOrStdout(), report)
			} else {
				err = report.WriteText(c.OutOrStdout(), verbose)
			}
			if err == nil && !report.OK {
				return term.ErrFindings
			}
			return err
		},
	}
	out.AddFlag(c)
	flags.flags(c)
	c.Flags().BoolVarP(&verbose, "verbose", "v", false, "list tests that pass too")
	c.Flags().StringVar(&pattern, "run", "", "run only the tests whose names match this regular expression")
	return c
}
