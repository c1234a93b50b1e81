package main

import (
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// An unknown subcommand is wrong usage, of every command with subcommands and of help. Otherwise a script with a misspelt subcommand
// would succeed and print help.
func TestUnknownSubcommand(t *testing.T) {
	var walk func(c *cobra.Command, path []string)
	walk = func(c *cobra.Command, path []string) {
		if !c.HasSubCommands() {
			return
		}
		for _, args := range [][]string{path, append([]string{"help"}, path...)} {
			args = append(args[:len(args):len(args)], "nosuch")
			code, out, err := sluiceRun(t, args...)
			if code != term.ExitWrong || out != "" || !strings.Contains(err, `unknown command "nosuch" for "`+c.CommandPath()+`"`) {
				t.Errorf("sluice %s: exit %d\n%s%s", strings.Join(args, " "), code, out, err)
			}
		}
		for _, sub := range c.Commands() {
			walk(sub, append(path[:len(path):len(path)], sub.Name()))
		}
	}
	walk(rootCommand(io.Discard, io.Discard), nil)

	for line, want := range map[string]string{
		"apikey nwe":      `did you mean "new"? Its commands are hash, list, new, revoke`,
		"queue lsit":      `did you mean "list"? Its commands are cancel, dead, list, requeue, status`,
		"completion bsh":  `did you mean "bash"?`,
		"apikey nosuch x": `unknown command "nosuch" for "sluice apikey": its commands are hash, list, new, revoke`,
		"help queue lsit": `did you mean "list"?`,
		"servr":           "serve",
	} {
		if code, _, err := sluiceRun(t, strings.Fields(line)...); code != term.ExitWrong || !strings.Contains(err, want) {
			t.Errorf("sluice %s: exit %d, %s", line, code, err)
		}
	}
	for _, line := range []string{"apikey", "queue", "completion", "help", "help queue", "help queue list", "help help"} {
		if code, out, err := sluiceRun(t, strings.Fields(line)...); code != term.ExitFine || !strings.Contains(out, "Usage:") || err != "" {
			t.Errorf("sluice %s: exit %d\n%s%s", line, code, out, err)
		}
	}
}
