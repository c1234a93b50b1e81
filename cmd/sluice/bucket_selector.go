package main

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/operate/admincli"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminclient"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// selectFlags name what a command is about: a rule and whom it counts for, a descriptor, or a request.
type selectFlags struct {
	live    remoteFlags
	request requestFlags
	line    string // of the request
	domain  string
}

const (
	selectUse  = " RULE [NAME=VALUE]... | --domain DOMAIN KEY=VALUE... | --request 'METHOD PATH'"
	selectHelp = "Say which by a rule and what it counts by, by a descriptor of an Envoy domain, or by a request, which then\n" +
		"means all that it would be counted in."
)

func (f *selectFlags) flags(c *cobra.Command) {
	c.Flags().StringVar(&f.domain, "domain", "", "the arguments are a descriptor of this Envoy domain")
	c.Flags().StringVar(&f.line, "request", "", "what this request counts in, 'POST /posts'; with -H and the like")
	f.request.flags(c)
	f.live.adminFlags(c)
	term.CompleteFlag(c, "request")
	_ = c.RegisterFlagCompletionFunc("domain", f.live.completeDomain)
	c.ValidArgsFunction = f.complete
}

// selector reads what was named.
func (f *selectFlags) selector(c *cobra.Command, args []string) (*adminmsg.Selector, error) {
	switch {
	case f.line != "" && f.domain != "":
		return nil, fmt.Errorf("--request and --domain are two ways to say the same: use one")
	case f.line != "" && len(args) > 0:
		return nil, fmt.Errorf("--request says it all: leave out %s", strings.Join(args, " "))
	case f.line != "":
		r, err := f.request.Request(f.line)
		if err != nil {
			return nil, fmt.Errorf("--request: %w", err)
		}
		return &adminmsg.Selector{Request: r}, nil
	case f.request.Given():
		return nil, fmt.Errorf("-H, --cookie, --claim, --attr and --ip describe a request: add --request 'POST /posts'")
	case len(args) == 0:
		return nil, fmt.Errorf("say which: sluice %[1]s posts-per-user user=ada, or sluice %[1]s --request 'POST /posts' -H 'X-User: ada'", c.Name())
	case f.domain != "":
		d, err := admincli.Pairs("--domain "+f.domain, args)
		if err != nil {
			return nil, err
		}
		return &adminmsg.Selector{Domain: f.domain, Descriptor: admincli.Entries(d)}, nil
	}
	key, err := admincli.KeyPairs("what "+args[0]+" counts by,", args[1:])
	return &adminmsg.Selector{Rule: args[0], Key: admincli.Entries(key)}, err
}

// misplaced adds what was probably meant to the error that there is no such rule. Only the service knows which names are those
// of rules: a rule of an Envoy domain has a = in its name, and may have anything else.
func misplaced(c *cobra.Command, name string, err error) error {
	var p *adminclient.ProblemError
	if !errors.As(err, &p) || p.Status != http.StatusNotFound || strings.Contains(p.Detail, "did you mean") {
		return err
	}
	switch {
	case strings.Contains(name, " /"):
		return fmt.Errorf("%w\nif %q is a request: sluice %s --request %s", err, name, c.Name(), term.ShellQuoted(name))
	case strings.Contains(name, "="):
		return fmt.Errorf("%w\nthe rule's name comes first: sluice %s posts-per-user %s", err, c.Name(), term.ShellQuoted(name))
	}
	return err
}

// complete has shells complete a rule's name, and then what the rule counts by.
func (f *selectFlags) complete(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if f.domain != "" || f.line != "" {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	all := f.live.completeRules(c)
	if len(args) == 0 {
		return ruleNames(all), cobra.ShellCompDirectiveNoFileComp
	}
	var parts []string
	for i := range all {
		if all[i].Name == args[0] {
			for _, name := range all[i].Per {
				parts = append(parts, name+"=")
			}
		}
	}
	return parts, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// bucketCommand is a command about buckets of a running service.
func bucketCommand(use, short, long, example string, run func(c *cobra.Command, f *selectFlags, s *adminmsg.Selector) error) *cobra.Command {
	var f selectFlags
	c := newCommand(use+selectUse, short, long+"\n\n"+selectHelp, example, func(c *cobra.Command, args []string) error {
		s, err := f.selector(c, args)
		if err != nil {
			return err
		}
		return misplaced(c, s.Rule, run(c, &f, s))
	})
	f.flags(c)
	return c
}
