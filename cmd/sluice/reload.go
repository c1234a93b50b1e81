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

const reloadLong = `Have a running service read its rule files again now, and say whether they changed. It does so by itself within
seconds of a change; this is for scripts that want to know. Files with faults change nothing.

It ends with 1 if the files have faults, or if settings of the configuration file have changed that only a restart applies,
such as routes of the gateway.`

const reloadExample = "  sluice reload"

func reloadCommand() *cobra.Command {
	var live remoteFlags
	c := withoutArguments("reload", "Have the service read its rules again now",
		reloadLong, reloadExample, func(c *cobra.Command) error {
			err := call(c, &live, http.MethodPost, "/v1/reload", struct{}{}, func(r *adminmsg.Reloaded, w io.Writer, s term.Style) error {
				text := "the rules are as they were"
				if r.Changed {
					text = "the rules changed"
				}
				if _, err := fmt.Fprintf(w, "%s, digest %s\n", text, term.Printable(r.Digest)); err != nil {
					return err
				}
				return writeRestart(r, w, s)
			})
			var p *adminclient.ProblemError
			if errors.As(err, &p) && p.Status == http.StatusUnprocessableEntity {
				return writeRefused(c, &live.out, p)
			}
			return err
		})
	c.ValidArgsFunction = cobra.NoFileCompletions
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

// writeRestart shows what a reload does not apply.
func writeRestart(r *adminmsg.Reloaded, w io.Writer, s term.Style) error {
	switch {
	case r.ConfigError != "":
		fmt.Fprintf(w, "the configuration file cannot be used, a restart would fail: %s\n", s.Red(term.Printable(r.ConfigError)))
	case len(r.RestartNeeded) > 0:
		fmt.Fprintf(w, "restart needed for changed settings: %s\n", s.Yellow(term.Printable(strings.Join(r.RestartNeeded, ", "))))
	default:
		return nil
	}
	return term.ErrFindings
}
