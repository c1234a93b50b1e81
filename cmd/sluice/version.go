package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/term"
)

func versionCommand() *cobra.Command {
	var out term.Output
	c := &cobra.Command{
		Use:               "version",
		Short:             "Print the version of this program",
		Example:           "  sluice version\n  sluice version -o json",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			v := struct {
				Version string `json:"version"`
				Go      string `json:"go"`
				System  string `json:"system"`
			}{version(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			if out.IsJSON() {
				return term.WriteJSON(c.OutOrStdout(), v)
			}
			_, err := fmt.Fprintf(c.OutOrStdout(), "sluice %s %s %s\n", v.Version, v.Go, v.System)
			return err
		},
	}
	out.AddFlag(c)
	return c
}

// version is that of the module, which go install records; a build from a checkout has none.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
