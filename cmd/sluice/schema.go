package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/rulefile"
)

// schemaKinds are what there is a schema of.
var schemaKinds = []string{"rules", "envoy", "test", "service"}

func schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema [rules|envoy|test|service]",
		Short: "Print the JSON Schema of rule files, test files and the service's configuration, for editors",
		Long: "Print the JSON Schema of rule files (the default), of files in Envoy's format, of test files, or of the\n" +
			"configuration of sluice serve. Editors that know it complete keys and mark mistakes. Name it in the first line of a file:\n\n" +
			"  # yaml-language-server: $schema=./sluice.schema.json",
		Example:           "  sluice schema >sluice.schema.json\n  sluice schema test >sluice-test.schema.json",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cobra.FixedCompletions(schemaKinds, cobra.ShellCompDirectiveNoFileComp),
		RunE: func(c *cobra.Command, args []string) error {
			kind := "rules"
			if len(args) > 0 {
				kind = args[0]
			}
			schema, err := schemaOf(kind)
			if err != nil {
				return fmt.Errorf("schema %s: %w: write one of %s", kind, err, strings.Join(schemaKinds, ", "))
			}
			_, err = c.OutOrStdout().Write(schema)
			return err
		},
	}
}

func schemaOf(kind string) ([]byte, error) {
	if kind == "service" {
		return config.Schema()
	}
	return rulefile.Schema(kind)
}
