package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/rulework/sources"
	"github.com/sluiceproject/sluice/rulefile"
)

// ruleFlags are the flags of the commands that read rules.
type ruleFlags struct{ mergeDomains bool }

func (f *ruleFlags) flags(c *cobra.Command) {
	c.Flags().BoolVar(&f.mergeDomains, "merge-domains", false, "let several Envoy files hold parts of one domain")
}

func (f *ruleFlags) options() rulefile.Options { return rulefile.Options{MergeDomains: f.mergeDomains} }

// load reads rules for a command that needs them sound.
func (f *ruleFlags) load(ctx context.Context, paths []string) (*rulefile.LoadResult, error) {
	return sources.Load(ctx, f.options(), orCurrentDir(paths))
}

// orCurrentDir is the current directory if no paths are given.
func orCurrentDir(paths []string) []string {
	if len(paths) == 0 {
		return []string{"."}
	}
	return paths
}
