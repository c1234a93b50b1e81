package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/internal/suggest"
)

// rejectWrongUse makes every command return an error with advice for wrong usage. Without it, cobra prints help and succeeds for
// unknown subcommands, and suggests no flag for a misspelt one.
func rejectWrongUse(root *cobra.Command) {
	root.SetFlagErrorFunc(wrongFlag)
	root.Args = noSuchCommand
	root.RunE = func(c *cobra.Command, _ []string) error { return c.Help() } // cobra validates arguments only of commands with RunE
	root.DisableFlagsInUseLine = true
	for _, group := range root.Commands() {
		switch {
		case group.Name() == "help":
			group.Args = func(_ *cobra.Command, args []string) error {
				about, rest, err := root.Find(args)
				if err == nil && about.HasSubCommands() {
					err = about.ValidateArgs(rest)
				}
				return err
			}
		case group.HasSubCommands():
			group.Args = noSuchCommand
			group.RunE = root.RunE
			group.DisableFlagsInUseLine = true
			for _, sub := range group.Commands() {
				if sub.Args != nil && group.Name() == "completion" {
					sub.Args = noArguments
				}
			}
		}
	}
}

// noSuchCommand returns an error that lists the subcommands if there is an argument, because cobra calls it only for unknown ones.
func noSuchCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, sub := range c.Commands() {
		names = append(names, sub.Name())
	}
	if now := renamedCommand(c, args[0]); now != "" {
		return fmt.Errorf("unknown command %q for %q: renamed: write %s %s", args[0], c.CommandPath(), c.CommandPath(), now)
	}
	all := "its commands are " + strings.Join(names, ", ")
	if !c.HasParent() {
		all = c.CommandPath() + " --help lists its commands"
	}
	if best := suggest.Closest(args[0], names); best != "" {
		all = fmt.Sprintf("did you mean %q? %s", best, strings.ToUpper(all[:1])+all[1:])
		if !c.HasParent() {
			all = fmt.Sprintf("did you mean %q?", best)
		}
	}
	return fmt.Errorf("unknown command %q for %q: %s", args[0], c.CommandPath(), all)
}
