package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/rulework/format"
	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/internal/plainfile"
)

func fmtCommand() *cobra.Command {
	var o format.Options
	c := &cobra.Command{
		Use:   "fmt [FILE|DIRECTORY]...",
		Short: "Format rule files",
		Long: "Print rule files and test files in the usual form: the same keys in the same order, comments kept. Of a\n" +
			"directory all *.yaml and *.yml files are meant. Without arguments standard input is formatted.",
		Example: "  sluice fmt posts.yaml            # print it formatted\n" +
			"  sluice fmt -w rules/             # format the files themselves\n" +
			"  sluice fmt -l rules/             # list the files that would change\n" +
			"  sluice fmt --check rules/        # the same, and end with 1 if there are any",
		ValidArgsFunction: term.CompleteRules,
		RunE: func(c *cobra.Command, paths []string) error {
			if len(paths) == 0 {
				if o != (format.Options{}) {
					return fmt.Errorf("name the files: standard input is only formatted to standard output")
				}
				return format.Input(plainfile.Interruptible(c.Context(), c.InOrStdin()), c.OutOrStdout())
			}
			different, err := o.Files(c.Context(), c.OutOrStdout(), paths)
			if err == nil && o.Check && different {
				return term.ErrFindings
			}
			return err
		},
	}
	c.Flags().BoolVarP(&o.Write, "write", "w", false, "write the result to the file instead of printing it")
	c.Flags().BoolVarP(&o.List, "list", "l", false, "list files whose form is another")
	c.Flags().BoolVar(&o.Check, "check", false, "list files whose form is another, and end with 1 if there are any")
	c.MarkFlagsMutuallyExclusive("write", "check")
	return c
}
