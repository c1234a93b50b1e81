package main

import (
	_ "embed"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/demo"
)

const demoLong = `Run a small API with Sluice before it on this machine, and print curl commands that show a request that is
allowed, one that is answered 429 Too Many Requests, and one that is kept and done later. It is sluice serve with
a gateway, a queue and ten rules. Made-up clients keep it busy, so that sluice top has something to show.

It needs no configuration and keeps nothing. ctrl-C ends it.`

const demoExample = `  sluice demo
  sluice demo --listen 127.0.0.1:9000
  sluice demo --rules     # only print its rules`

func demoCommand() *cobra.Command {
	f := demo.Options{Version: version()}
	var rules bool
	c := withoutArguments("demo", "Run a small limited API on this machine, with curl commands to try on it",
		demoLong, demoExample, func(c *cobra.Command) error {
			if rules {
				_, err := c.OutOrStdout().Write(demo.Rules)
				return err
			}
			f.Chosen = c.Flags().Changed("listen")
			return demo.Run(c.Context(), f, c.OutOrStdout(), c.ErrOrStderr())
		})
	c.Flags().StringVar(&f.Listen, "listen", "127.0.0.1:8000", "address of the gateway; with port 0 everything is on free ports")
	c.Flags().BoolVar(&f.NoTraffic, "no-traffic", false, "without made-up clients")
	c.Flags().BoolVar(&rules, "rules", false, "print the rules, and nothing else")
	return c
}
