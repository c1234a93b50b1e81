package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/operate/adminclient"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/internal/suggest"
)

func suspendCommand() *cobra.Command {
	return switchCommand("suspend", "Stop enforcing rules",
		"Suspend rules: they allow all requests and charge nothing, in this instance only and until it restarts. Use this for\n"+
			"a harmful rule while its rule file is being fixed. Other instances still enforce it. The service logs the operation and\n"+
			"its operator.",
		"  sluice suspend posts-per-user\n  sluice resume posts-per-user")
}

func resumeCommand() *cobra.Command {
	return switchCommand("resume", "Enforce suspended rules again",
		"Enforce rules again that sluice suspend has suspended.", "  sluice resume posts-per-user")
}

func switchCommand(verb, short, long, example string) *cobra.Command {
	var live remoteFlags
	c := newCommand(verb+" RULE...", short, long, example, func(c *cobra.Command, args []string) error {
		err := call(c, &live, http.MethodPost, "/v1/"+verb, adminmsg.RuleNames{Rules: args}, writeSuspended)
		return live.nearest(c, err, args)
	})
	c.Args = func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return fmt.Errorf("a rule is required: write sluice %s posts-per-user", verb)
		}
		return nil
	}
	c.ValidArgsFunction = func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		all := slices.DeleteFunc(live.completeRules(c), func(r adminmsg.Rule) bool {
			return r.Suspended != (verb == "resume") || slices.Contains(args, r.Name)
		})
		return ruleNames(all), cobra.ShellCompDirectiveNoFileComp
	}
	live.adminFlags(c)
	return c
}

func writeSuspended(n *adminmsg.Suspended, w io.Writer, s term.Style) error {
	if len(n.Suspended) == 0 {
		_, err := fmt.Fprintln(w, "no rules are suspended")
		return err
	}
	_, err := fmt.Fprintf(w, "suspended in this instance until it restarts: %s\n", s.Yellow(term.Printable(strings.Join(n.Suspended, ", "))))
	return err
}

// nearest adds the most similar rule name to the error for an unknown rule.
func (f *remoteFlags) nearest(c *cobra.Command, err error, written []string) error {
	var p *adminclient.ProblemError
	if !errors.As(err, &p) || p.Status != http.StatusNotFound || strings.Contains(p.Detail, "did you mean") {
		return err
	}
	var names []string
	for _, r := range f.completeRules(c) {
		names = append(names, r.Name)
	}
	for _, name := range written {
		if near := suggest.Closest(name, names); near != "" && near != name {
			return fmt.Errorf("%w: did you mean %q?", err, near)
		}
	}
	return err
}
