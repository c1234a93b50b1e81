package main

import (
	"fmt"
	"io"
	"regexp"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/rulework/ruletest"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

const testLong = `Run the tests in files named *_test.yaml: lists of requests with their times and expected outcomes. The requests pass
through the same code as in the service, on a virtual clock, so that a test of a weekly quota takes milliseconds.
Without arguments, the tests of the current directory are run.

` + ruletest.Format + `
Exit codes: 0 if all tests pass, 1 if a test fails, 2 if there are no tests or a file cannot be read.`

const testExample = `  sluice test
  sluice test -v --run 'each user' rules/
  sluice test rules/posts_test.yaml -o json`

func testCommand() *cobra.Command {
	var (
		out     term.Output
		flags   ruleFlags
		verbose bool
		pattern string
	)
	c := newCommand("test [FILE|DIRECTORY]...", "Run the tests of rule files",
		testLong, testExample, func(c *cobra.Command, paths []string) error {
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
			text := func(w io.Writer) error { return report.WriteText(w, verbose) }
			return writeResult(c, &out, report, text, !report.OK)
		})
	c.ValidArgsFunction = term.CompleteRules
	out.AddFlag(c)
	flags.flags(c)
	c.Flags().BoolVarP(&verbose, "verbose", "v", false, "list passed tests too")
	c.Flags().StringVar(&pattern, "run", "", "regular expression; run only tests with a matching name")
	return c
}
