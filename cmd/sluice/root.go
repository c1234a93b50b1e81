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

// run is the whole program, for tests to call. It returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := rootCommand(stdout, stderr)
	root.SetArgs(args)
	switch err := root.ExecuteContext(ctx); {
	case errors.Is(err, term.ErrFindings):
		return term.ExitFindings
	case err != nil:
		out := logwriter.New(logwriter.Config{Output: stderr})
		for line := range strings.SplitSeq(fmt.Sprintf("sluice: %v", err), "\n") { // it may quote a file, or what a server sent
			fmt.Fprintln(out, term.Printable(line))
		}
		_ = out.Close(term.OutputTimeout)
		return term.ExitWrong
	}
	return term.ExitFine
}

const rootExample = `  sluice demo                                          # a limited API to play with
  sluice serve                                         # the service that Envoy and others ask
  sluice serve --config sluice.yaml                    # the same, and a gateway before your API
  sluice check rules/                                  # are the rules sound?
  sluice test rules/                                   # do they limit what they should?
  sluice explain --rules rules/ 'POST /posts' -H 'X-User: ada'
  sluice simulate --rules rules/ access.log             # whom would they have denied?
  sluice limits --html rules/ >limits.html             # for the developers who use your API
  sluice top                                           # whom does the running service limit?`

func rootCommand(stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "sluice",
		Short: "Limit how much of something may happen in how long",
		Long: "Limit how much of something may happen in how long.\n\n" +
			"Results go to standard output, progress and faults to standard error. Every command ends with\n" +
			"0 if all is fine, 1 if it found something, 2 for wrong use or input that cannot be read.",
		Example:       rootExample,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	for _, g := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"Rules:", []*cobra.Command{
			checkCommand(), testCommand(), explainCommand(), simulateCommand(), limitsCommand(), fmtCommand(), schemaCommand(),
		}},
		{"The service:", []*cobra.Command{
			serveCommand(), benchCommand(), ratelimitCommand(), demoCommand(), apikeyCommand(), passwordCommand(),
		}},
		{"Ask a running service:", []*cobra.Command{
			statusCommand(), topCommand(), watchCommand(), takeCommand(), peekCommand(), resetCommand(), blockCommand(),
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
	root.SetOut(stdout) // before the commands that ask for it when they are made
	root.SetErr(stderr)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	addMissingExamples(root)
	rejectWrongUse(root)
	return root
}

// addMissingExamples gives the commands that come with the library an example, which every command has.
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
