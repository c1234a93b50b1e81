package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

// The tables of flags, variables and commands that were renamed before the first release. Delete this file and its uses with the
// first release.
var (
	renamedFlags = []struct{ old, new string }{
		{"admin", "admin-url"},
		{"service", "service-url"},
		{"ca", "tls-ca"},
		{"cert", "tls-cert"},
		{"key", "tls-key"},
		{"near", "near-limit"},
		{"after", "page-token"},
		{"number", "limit"},
		{"number", "intervals"},
		{"matching", "only-matching"},
		{"callers", "concurrency"},
	}
	renamedVariables = []struct{ old, new string }{
		{"SLUICE_ADMIN", "SLUICE_ADMIN_URL"},
		{"SLUICE_SERVICE", "SLUICE_SERVICE_URL"},
		{"SLUICE_CA", "SLUICE_TLS_CA"},
		{"SLUICE_CERT", "SLUICE_TLS_CERT"},
		{"SLUICE_KEY", "SLUICE_TLS_KEY"},
	}
	renamedCommands = []struct{ old, new string }{{"replay", "requeue"}}
)

// renamedFlag reports whether a flag was renamed, and returns its new name, or "" if the command has no such flag.
func renamedFlag(c *cobra.Command, name string) (now string, renamed bool) {
	for _, r := range renamedFlags {
		if r.old != name {
			continue
		}
		if renamed = true; c.Flags().Lookup(r.new) != nil {
			now = r.new
		}
	}
	return now, renamed
}

// rejectRenamedVariables returns an error if one of the variables is set under its old name only.
func rejectRenamedVariables(variables []string) error {
	for _, variable := range variables {
		for _, r := range renamedVariables {
			if r.new == variable && os.Getenv(r.old) != "" && os.Getenv(r.new) == "" {
				return fmt.Errorf("%s: renamed: set %s", r.old, r.new)
			}
		}
	}
	return nil
}

// renamedCommand returns the new name of a subcommand of c, or "" if it was not renamed.
func renamedCommand(c *cobra.Command, name string) string {
	for _, r := range renamedCommands {
		for _, sub := range c.Commands() {
			if r.old == name && r.new == sub.Name() {
				return r.new
			}
		}
	}
	return ""
}
