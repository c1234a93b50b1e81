package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/term"
)

const versionExample = `  sluice version
  sluice version -o json`

func versionCommand() *cobra.Command {
	var out term.Output
	c := withoutArguments("version", "Print the version of the program", "Print the version of the program, the Go version it was built with, and the platform.", versionExample, func(c *cobra.Command) error {
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
	})
	c.ValidArgsFunction = cobra.NoFileCompletions
	out.AddFlag(c)
	return c
}

// version returns the module version that go install records, or "(devel)" for a build from a checkout.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
