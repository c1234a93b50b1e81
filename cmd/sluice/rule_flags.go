package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/rulework/sources"
	"github.com/sluiceproject/sluice/rulefile"
)

// ruleFlags are the flags of commands that read rule files.
type ruleFlags struct{ mergeDomains bool }

func (f *ruleFlags) flags(c *cobra.Command) {
	c.Flags().BoolVar(&f.mergeDomains, "merge-domains", false, "allow several files in Envoy's format for one domain")
}

func (f *ruleFlags) options() rulefile.Options { return rulefile.Options{MergeDomains: f.mergeDomains} }

// load reads rule files and returns an error if they have errors.
func (f *ruleFlags) load(ctx context.Context, paths []string) (*rulefile.LoadResult, error) {
	return sources.Load(ctx, f.options(), orCurrentDir(paths))
}

// orCurrentDir returns paths, or the current directory if there are none.
func orCurrentDir(paths []string) []string {
	if len(paths) == 0 {
		return []string{"."}
	}
	return paths
}
