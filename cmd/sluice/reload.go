package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/operate/adminclient"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/rules"
)

const reloadLong = `Reload the rule files of a running service now, and report whether they changed. The service reloads changed files
without this command within seconds; use it in scripts that need the result. If the files have errors, the service keeps
its current rules.

Exit codes: 0 on success; 1 if the rule files have errors, or if settings of the configuration file changed that need a
restart, such as routes of the gateway.`

const reloadExample = "  sluice reload"

func reloadCommand() *cobra.Command {
	var live remoteFlags
	c := withoutArguments("reload", "Reload the rule files of a running service",
		reloadLong, reloadExample, func(c *cobra.Command) error {
			err := call(c, &live, http.MethodPost, "/v1/reload", struct{}{}, func(r *adminmsg.Reloaded, w io.Writer, s term.Style) error {
				text := "the rules have not changed"
				if r.Changed {
					text = "the rules have changed"
				}
				if _, err := fmt.Fprintf(w, "%s, digest %s\n", text, term.Printable(r.Digest)); err != nil {
					return err
				}
				return writeRestart(r, w, s)
			})
			var p *adminclient.ProblemError
			if errors.As(err, &p) && p.Status == http.StatusUnprocessableEntity {
				return writeRejected(c, &live.out, p)
			}
			return err
		})
	c.ValidArgsFunction = cobra.NoFileCompletions
	live.adminFlags(c)
	return c
}

// writeRejected prints the errors of rule files that the service does not use.
func writeRejected(c *cobra.Command, o *term.Output, p *adminclient.ProblemError) error {
	w := c.OutOrStdout()
	if o.IsJSON() {
		rejected := struct {
			Changed bool                 `json:"changed"`
			Errors  []adminmsg.RuleError `json:"errors"`
		}{false, p.Errors}
		if err := term.WriteJSON(w, rejected); err != nil {
			return err
		}
		return term.ErrFindings
	}
	s := term.NewStyle(w)
	fmt.Fprintln(w, "the rule files have errors, the previous rule set stays in use:")
	for _, f := range p.Errors {
		rule := ""
		if f.Rule != "" {
			rule = fmt.Sprintf("rule %q: ", f.Rule)
		}
		fmt.Fprintf(w, "  %s %s\n", s.Bold(term.Printable(rules.Position{File: f.File, Line: f.Line, Column: f.Column}.String())+":"), term.Printable(rule+f.Message))
	}
	return term.ErrFindings
}

// writeRestart prints the changed settings that a reload does not apply.
func writeRestart(r *adminmsg.Reloaded, w io.Writer, s term.Style) error {
	switch {
	case r.ConfigError != "":
		fmt.Fprintln(w, "the configuration file has errors, and a restart would fail:")
		for line := range strings.Lines(r.ConfigError) {
			fmt.Fprintln(w, "  "+s.Red(term.Printable(strings.TrimRight(line, "\n"))))
		}
	case len(r.RestartNeeded) > 0:
		fmt.Fprintf(w, "changed settings that need a restart: %s\n", s.Yellow(term.Printable(strings.Join(r.RestartNeeded, ", "))))
	default:
		return nil
	}
	return term.ErrFindings
}
