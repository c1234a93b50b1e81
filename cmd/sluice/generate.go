package main

import (
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/cmd/internal/traffic/generate"
)

var generateLong = `Write a synthetic access log in Sluice's format, to try rules without a log of your own. The same flags write the same
log. Ordinary clients have addresses of 198.18.0.0/16, bots and floods of 198.19.0.0/16. Kinds of traffic:

` + generate.Help() + `
Exit codes: 0, or 2 for wrong flags.`

const generateExample = `  sluice generate poisson >access.log
  sluice generate flood --rate 50 --clients 1000 --seed 7 | sluice simulate --rules rules/ -
  sluice generate daily --duration 3d --rate 2 | gzip >access.log.gz`

func generateCommand() *cobra.Command {
	f := generate.Config{Start: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	c := newCommand("generate KIND", "Write a synthetic access log", generateLong, generateExample, func(c *cobra.Command, args []string) error {
		f.Kind = args[0]
		_, err := generate.Write(c.Context(), c.OutOrStdout(), f)
		return err
	})
	c.Args = func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return errors.New("a kind of traffic is required: write one of " + strings.Join(generate.Kinds(), ", "))
		}
		return nil
	}
	c.ValidArgsFunction = cobra.FixedCompletions(generate.Kinds(), cobra.ShellCompDirectiveNoFileComp)
	c.Flags().Uint64Var(&f.Seed, "seed", 1, "seed of the random numbers")
	c.Flags().Float64Var(&f.Rate, "rate", 10, "mean requests per second of ordinary clients")
	c.Flags().IntVar(&f.Clients, "clients", 100, "number of ordinary clients")
	term.AddDuration(c, &f.Duration, "duration", "", 10*time.Minute, "time span of the log, such as 10m or 3d")
	for _, name := range []string{"seed", "rate", "clients", "duration"} {
		term.CompleteFlag(c, name)
	}
	return c
}
