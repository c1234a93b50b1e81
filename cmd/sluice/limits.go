package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/rulework/describe"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

const limitsLong = `Write a page for the developers who use your API: the limits, the responses to requests over a limit, and advice on
retries. The example responses come from the middleware, or from the gateway for queued requests, with these rules: 429 or
the status of the rule's denial, 202 for a queued request, a delayed response, and 503 for a rule that fails closed. The
page shows one of each kind; -o json has those of every rule.

The page omits rules that are hidden, disabled or in shadow mode, and exceptions, allow lists and overrides. It shows only
the conditions on method, host and path; give a rule with other conditions a description.`

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
	c := newCommand("limits [FILE|DIRECTORY]...", "Write a page about the limits for the users of your API",
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
	c.Flags().BoolVar(&html, "html", false, "write a self-contained HTML page")
	c.Flags().BoolVar(&markdown, "markdown", false, "write Markdown")
	c.Flags().StringVar(&title, "title", "Rate limits", "title of the page")
	term.CompleteFlag(c, "title")
	c.MarkFlagsMutuallyExclusive("html", "markdown", "output")
	return c
}
