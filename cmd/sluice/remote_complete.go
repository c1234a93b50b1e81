package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/operate/adminclient"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
	"github.com/sluiceproject/sluice/internal/suggest"
)

// ruleNames returns completions for rule names, each with the rule's limits as its description.
func ruleNames(all []adminmsg.Rule) []string {
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Name + "\t" + all[i].LimitText()
	}
	return names
}

// completeRules returns the rules of the running service, or nil if it cannot be reached.
func (f *remoteFlags) completeRules(c *cobra.Command) []adminmsg.Rule {
	client, err := adminclient.New(c.Context(), f.cfg)
	if err != nil {
		return nil
	}
	return remoteRules(c.Context(), client)
}

// completeDomain returns completions for names of Envoy domains.
func (f *remoteFlags) completeDomain(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	var names []string
	seen := make(map[string]bool)
	for _, r := range f.completeRules(c) {
		name, _, _ := strings.Cut(r.Name, "/")
		if r.Format == "envoy" && !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// remoteRules returns the rules of the running service, for error messages and shell completion. It returns nil after 500 ms,
// because both should not wait.
func remoteRules(ctx context.Context, client *adminclient.Client) []adminmsg.Rule {
	ctx, cancel := context.WithTimeout(ctx, time.Second/2)
	defer cancel()
	var answer adminmsg.Rules
	if _, err := client.Get(ctx, "/v1/rules", &answer); err != nil {
		return nil
	}
	return answer.Rules
}

// unknownRule returns an error for the first name that no rule has, or nil.
func unknownRule(all []adminmsg.Rule, written []string) error {
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Name
	}
	for _, name := range written {
		if slices.Contains(names, name) {
			continue
		}
		if near := suggest.Closest(name, names); near != "" {
			return fmt.Errorf("there is no rule %q: did you mean %q?", name, near)
		}
		return fmt.Errorf("there is no rule %q: sluice status --rules lists all rules", name)
	}
	return nil
}
