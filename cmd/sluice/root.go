package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/operate/logwriter"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// run executes the program with the given arguments and returns its exit code. Tests call it instead of starting a process.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := rootCommand(stdout, stderr)
	root.SetArgs(args)
	switch err := root.ExecuteContext(ctx); {
	case errors.Is(err, term.ErrFindings):
		return term.ExitFindings
	case err != nil:
		out := logwriter.New(logwriter.Config{Output: stderr})
		for line := range strings.SplitSeq(fmt.Sprintf("sluice: %v", err), "\n") { // the error may quote a file or a server's response
			fmt.Fprintln(out, term.Printable(line))
		}
		_ = out.Close(term.OutputTimeout)
		return term.ExitWrong
	}
	return term.ExitFine
}

const rootExample = `  sluice demo                                # run a small rate-limited API to try
  sluice serve                               # run the rate limit service with a demo rule
  sluice serve --config sluice.yaml          # run the service, or a gateway, from a configuration file
  sluice check rules/                        # check rule files for errors
  sluice test rules/                         # run the tests of the rule files
  sluice explain --rules rules/ 'POST /posts' -H 'X-User: ada'
  sluice simulate --rules rules/ access.log  # replay an access log through the rules
  sluice recommend access.log                # recommend a limit from an access log
  sluice limits --html rules/ >limits.html   # document the limits for the users of your API
  sluice top                                 # show the keys that a running service denies most often`

func rootCommand(stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "sluice",
		Short: "Distributed rate limiter: service, API gateway and tools for rule files",
		Long: "Sluice is a distributed rate limiter: a service for Envoy, HTTP and Redis clients, an API gateway with a\n" +
			"durable queue, and tools to write, test and operate rate limits.\n\n" +
			"Results go to standard output, progress and errors to standard error. Exit codes of all commands:\n\n" +
			"  0  success\n" +
			"  1  findings, such as an error in a rule file, a failed test or a denied request\n" +
			"  2  wrong usage, unreadable input or an unreachable service",
		Example:       rootExample,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	for _, g := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"Rule files:", []*cobra.Command{
			checkCommand(), testCommand(), explainCommand(), simulateCommand(), recommendCommand(), limitsCommand(), fmtCommand(), schemaCommand(),
		}},
		{"Servers and tools:", []*cobra.Command{
			serveCommand(), benchCommand(), generateCommand(), ratelimitCommand(), demoCommand(), apikeyCommand(), passwordCommand(),
		}},
		{"Operate a running service:", []*cobra.Command{
			doctorCommand(), statusCommand(), topCommand(), watchCommand(), takeCommand(), peekCommand(), resetCommand(), blockCommand(),
			unblockCommand(), suspendCommand(), resumeCommand(), reloadCommand(), queueCommand(),
		}},
	} {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, c := range g.commands {
			c.GroupID = g.title
		}
		root.AddCommand(g.commands...)
	}
	root.AddCommand(versionCommand())
	root.SetOut(stdout) // before the default commands, which read the output when they are created
	root.SetErr(stderr)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	addMissingExamples(root)
	rejectWrongUse(root)
	return root
}

// addMissingExamples adds examples to cobra's own commands, because every command has one.
func addMissingExamples(root *cobra.Command) {
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.Example = "  sluice help check"
		case "completion":
			c.Example = "  source <(sluice completion bash)"
			for _, shell := range c.Commands() {
				shell.Example = "  sluice completion " + shell.Name()
			}
		}
	}
}
