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

// selectFlags select buckets: by rule and key, by descriptor, or by request.
type selectFlags struct {
	live    remoteFlags
	request requestFlags
	line    string // METHOD and PATH of --request
	domain  string
}

const (
	selectUse  = " RULE [NAME=VALUE]... | --domain DOMAIN KEY=VALUE... | --request 'METHOD PATH'"
	selectHelp = "Select limits by a rule and its key, by a descriptor of an Envoy domain, or with --request all limits that the\n" +
		"request would be charged to."
)

func (f *selectFlags) flags(c *cobra.Command) {
	c.Flags().StringVar(&f.domain, "domain", "", "Envoy domain; the arguments are the entries of a descriptor")
	c.Flags().StringVar(&f.line, "request", "", "request such as 'POST /posts' whose limits to select; add its headers with -H")
	f.request.flags(c)
	f.live.adminFlags(c)
	term.CompleteFlag(c, "request")
	_ = c.RegisterFlagCompletionFunc("domain", f.live.completeDomain)
	c.ValidArgsFunction = f.complete
}

// selector returns the selected buckets for the admin API.
func (f *selectFlags) selector(c *cobra.Command, args []string) (*adminmsg.Selector, error) {
	switch {
	case f.line != "" && f.domain != "":
		return nil, fmt.Errorf("--request and --domain exclude each other: use one")
	case f.line != "" && len(args) > 0:
		return nil, fmt.Errorf("--request takes no arguments: remove %s", strings.Join(args, " "))
	case f.line != "":
		r, err := f.request.Request(f.line)
		if err != nil {
			return nil, fmt.Errorf("--request: %w", err)
		}
		return &adminmsg.Selector{Request: r}, nil
	case f.request.Given():
		return nil, fmt.Errorf("-H, --cookie, --claim, --attr and --ip describe a request: add --request 'POST /posts'")
	case len(args) == 0:
		return nil, fmt.Errorf("a rule is required: write sluice %[1]s posts-per-user user=ada, or sluice %[1]s --request 'POST /posts' -H 'X-User: ada'", c.Name())
	case f.domain != "":
		d, err := admincli.Pairs("--domain "+f.domain, args)
		if err != nil {
			return nil, err
		}
		return &adminmsg.Selector{Domain: f.domain, Descriptor: admincli.Entries(d)}, nil
	}
	key, err := admincli.KeyPairs("the key of "+args[0], args[1:])
	return &adminmsg.Selector{Rule: args[0], Key: admincli.Entries(key)}, err
}

// misplaced adds a suggestion to the error for an unknown rule: the name may be a request, or the first part of a key. The check
// needs the service's response, because only the service knows the names of rules, and those of Envoy domains may contain = and
// any other character.
func misplaced(c *cobra.Command, name string, err error) error {
	var p *adminclient.ProblemError
	if !errors.As(err, &p) || p.Status != http.StatusNotFound || strings.Contains(p.Detail, "did you mean") {
		return err
	}
	switch {
	case strings.Contains(name, " /"):
		return fmt.Errorf("%w\nif %q is a request, write sluice %s --request %s", err, name, c.Name(), term.ShellQuoted(name))
	case strings.Contains(name, "="):
		return fmt.Errorf("%w\nthe name of the rule comes first: sluice %s posts-per-user %s", err, c.Name(), term.ShellQuoted(name))
	}
	return err
}

// complete returns completions for the rule's name, then for the parts of its key.
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

// bucketCommand returns a command about buckets of a running service.
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
