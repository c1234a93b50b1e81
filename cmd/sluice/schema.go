package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/rulefile"
)

// schemaKinds are the file formats that have a schema.
var schemaKinds = []string{"rules", "envoy", "test", "service"}

const schemaLong = `Print the JSON Schema of rule files (the default), of rule files in Envoy's format, of test files, or of the
configuration file of sluice serve. With the schema, editors complete keys and mark errors. Name it in the first line
of a file:

  # yaml-language-server: $schema=./sluice.schema.json`

const schemaExample = `  sluice schema >sluice.schema.json
  sluice schema test >sluice-test.schema.json`

func schemaCommand() *cobra.Command {
	c := newCommand("schema [rules|envoy|test|service]", "Print the JSON Schema of a file format, for editors",
		schemaLong, schemaExample, func(c *cobra.Command, args []string) error {
			kind := "rules"
			if len(args) > 0 {
				kind = args[0]
			}
			schema, err := schemaOf(kind)
			if err != nil {
				return fmt.Errorf("there is no schema %q: write one of %s", kind, strings.Join(schemaKinds, ", "))
			}
			_, err = c.OutOrStdout().Write(schema)
			return err
		})
	c.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 1 {
			return fmt.Errorf("sluice schema takes one argument: write one of %s", strings.Join(schemaKinds, ", "))
		}
		return nil
	}
	c.ValidArgsFunction = cobra.FixedCompletions(schemaKinds, cobra.ShellCompDirectiveNoFileComp)
	return c
}

func schemaOf(kind string) ([]byte, error) {
	if kind == "service" {
		return config.Schema()
	}
	return rulefile.Schema(kind)
}
