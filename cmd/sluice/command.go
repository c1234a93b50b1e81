package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// newCommand returns a command. It accepts any arguments unless Args is set.
func newCommand(use, short, long, example string, run func(c *cobra.Command, args []string) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Long: long, Example: example, RunE: run}
}

// withoutArguments returns a command that takes no arguments.
func withoutArguments(use, short, long, example string, run func(c *cobra.Command) error) *cobra.Command {
	c := newCommand(use, short, long, example, func(c *cobra.Command, _ []string) error { return run(c) })
	c.Args = noArguments
	return c
}

// noArguments returns an error with advice if there are arguments.
func noArguments(c *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case c.Flags().Lookup("config") != nil:
		return fmt.Errorf("%s takes no arguments: write %s --config %s", c.CommandPath(), c.CommandPath(), args[0])
	}
	return fmt.Errorf("%s takes no arguments, but got %q: %s --help lists its flags", c.CommandPath(), args[0], c.CommandPath())
}

// writeResult prints the result of a command as JSON or text. With findings it returns term.ErrFindings, and the exit code is 1.
func writeResult(c *cobra.Command, out *term.Output, result any, text func(io.Writer) error, findings bool) error {
	w := c.OutOrStdout()
	var err error
	if out.IsJSON() {
		err = term.WriteJSON(w, result)
	} else {
		err = text(w)
	}
	if err == nil && findings {
		return term.ErrFindings
	}
	return err
}
