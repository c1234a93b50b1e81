package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/rulework/format"
	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/internal/plainfile"
)

const fmtLong = `Print rule files and test files in the standard format: keys in a fixed order, comments preserved. For a directory, all
*.yaml and *.yml files are formatted. Without arguments, standard input is formatted.`

const fmtExample = `  sluice fmt posts.yaml            # print it formatted
  sluice fmt -w rules/             # rewrite the files in place
  sluice fmt -l rules/             # list the files that would change
  sluice fmt --check rules/        # list them, and exit with 1 if there are any`

func fmtCommand() *cobra.Command {
	var o format.Options
	c := newCommand("fmt [FILE|DIRECTORY]...", "Format rule files and test files",
		fmtLong, fmtExample, func(c *cobra.Command, paths []string) error {
			if len(paths) == 0 {
				if o != (format.Options{}) {
					return fmt.Errorf("-w, -l and --check need a file or directory: write sluice fmt -w rules/; standard input is only formatted to standard output")
				}
				return format.Input(plainfile.Interruptible(c.Context(), c.InOrStdin()), c.OutOrStdout())
			}
			different, err := o.Files(c.Context(), c.OutOrStdout(), paths)
			if err == nil && o.Check && different {
				return term.ErrFindings
			}
			return err
		})
	c.ValidArgsFunction = term.CompleteRules
	c.Flags().BoolVarP(&o.Write, "write", "w", false, "write the result to the file instead of printing it")
	c.Flags().BoolVarP(&o.List, "list", "l", false, "list files that are not formatted")
	c.Flags().BoolVar(&o.Check, "check", false, "list files that are not formatted, and exit with 1 if there are any")
	c.MarkFlagsMutuallyExclusive("write", "check")
	return c
}
