package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/rulework/describe"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

func limitsCommand() *cobra.Command {
	var (
		out            term.Output
		flags          ruleFlags
		html, markdown bool
		title          string
	)
	c := &cobra.Command{
		Use:   "limits [FILE|DIRECTORY]...",
		Short: "Write the documentation of the limits for the developers who use your API",
		Long: "Write what outside developers have to know: which limits there are and for whom, what a caller over a\n" +
			"limit gets, with an example that is made by the middleware itself, and how to wait. Rules that are hidden,\n" +
			"disabled or in shadow are left out, and so are exceptions, allow lists and overrides: they are nobody\n" +
			"else's business. Of the conditions only method, host and path are told; a rule with others should have a\n" +
			"description.",
		Example: "  sluice limits rules/\n" +
			"  sluice limits --markdown rules/ >LIMITS.md\n" +
			"  sluice limits --html --title 'Limits of the Example API' rules/ >limits.html",
		ValidArgsFunction: term.CompleteRules,
		RunE: func(c *cobra.Command, paths []string) error {
			loaded, err := flags.load(c.Context(), paths)
			if err != nil {
				return err
			}
			d := describe.NewPage(loaded.Set, title)
			for _, advice := range d.Advice {
				fmt.Fprintf(c.ErrOrStderr(), "sluice: %s\n", advice)
			}
			w := c.OutOrStdout()
			switch {
			case out.IsJSON():
				return term.WriteJSON(w, d)
			case html:
				return d.WriteHTML(w)
			case markdown:
				return d.WriteMarkdown(w)
			}
			return d.WriteText(w)
		},
	}
	out.AddFlag(c)
	flags.flags(c)
	c.Flags().BoolVar(&html, "html", false, "write a page of HTML that needs nothing else")
	c.Flags().BoolVar(&markdown, "markdown", false, "write Markdown")
	c.Flags().StringVar(&title, "title", "Rate limits", "title of the page")
	term.CompleteFlag(c, "title")
	c.MarkFlagsMutuallyExclusive("html", "markdown", "output")
	return c
}
