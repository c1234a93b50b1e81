package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/operate/adminclient"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/rules"
)

func reloadCommand() *cobra.Command {
	var live remoteFlags
	var out term.Output
	c := &cobra.Command{
		Use:   "reload",
		Short: "Have the service read its rules again now",
		Long: "Have a running service read its rule files again now, and say whether they changed. It does so by itself within\n" +
			"seconds of a change; this is for scripts that want to know. Files with faults change nothing.\n\n" +
			"It ends with 1 if the files have faults.",
		Example:           "  sluice reload",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			err := call(c, &live, &out, http.MethodPost, "/v1/reload", struct{}{}, func(r *adminmsg.Reloaded, w io.Writer, s term.Style) error {
				text := "the rules are as they were"
				if r.Changed {
					text = "the rules changed"
				}
				_, err := fmt.Fprintf(w, "%s, digest %s\n", text, term.Printable(r.Digest))
				return err
			})
			var p *adminclient.ProblemError
			if errors.As(err, &p) && p.Status == http.StatusUnprocessableEntity {
				return writeRefused(c, &out, p)
			}
			return err
		},
	}
	out.AddFlag(c)
	live.adminFlags(c)
	return c
}

// writeRefused shows the faults of files that change nothing.
func writeRefused(c *cobra.Command, o *term.Output, p *adminclient.ProblemError) error {
	w := c.OutOrStdout()
	if o.IsJSON() {
		refused := struct {
			Changed bool             `json:"changed"`
			Faults  []adminmsg.Fault `json:"faults"`
		}{false, p.Faults}
		if err := term.WriteJSON(w, refused); err != nil {
			return err
		}
		return term.ErrFindings
	}
	s := term.NewStyle(w)
	fmt.Fprintln(w, "the rule files cannot be used, and the rules before them stay:")
	for _, f := range p.Faults {
		rule := ""
		if f.Rule != "" {
			rule = fmt.Sprintf("rule %q: ", f.Rule)
		}
		fmt.Fprintf(w, "  %s %s\n", s.Bold(term.Printable(rules.Position{File: f.File, Line: f.Line, Column: f.Column}.String())+":"), term.Printable(rule+f.Message))
	}
	return term.ErrFindings
}
