package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/rulework/describe"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

const limitsLong = `Write what outside developers have to know: which limits there are and for whom, what a caller over a
limit gets, with examples, and how to wait. An example is a response of the middleware, or of the gateway
for a request that is queued, under these rules: 429 or the status of the rule's denial, 202, a response
after a delay, and 503 for a rule that fails closed. -o json has those of every rule. Rules that are
hidden, disabled or in shadow mode are left out, and so are exceptions, allow lists and overrides. Of the
conditions only method, host and path are told; a rule with others should have a description.`

const limitsExample = `  sluice limits rules/
  sluice limits --markdown rules/ >LIMITS.md
  sluice limits --html --title 'Limits of the Example API' rules/ >limits.html`

func limitsCommand() *cobra.Command {
	var (
		out            term.Output
		flags          ruleFlags
		html, markdown bool
		title          string
	)
	c := newCommand("limits [FILE|DIRECTORY]...", "Write the documentation of the limits for the developers who use your API",
		limitsLong, limitsExample, func(c *cobra.Command, paths []string) error {
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
		})
	c.ValidArgsFunction = term.CompleteRules
	out.AddFlag(c)
	flags.flags(c)
	c.Flags().BoolVar(&html, "html", false, "write a page of HTML that needs nothing else")
	c.Flags().BoolVar(&markdown, "markdown", false, "write Markdown")
	c.Flags().StringVar(&title, "title", "Rate limits", "title of the page")
	term.CompleteFlag(c, "title")
	c.MarkFlagsMutuallyExclusive("html", "markdown", "output")
	return c
}
