package main

import (
	_ "embed"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/demo"
)

const demoLong = `Run a small API behind the Sluice gateway on localhost, and print curl commands to try: an allowed request, a denied
request (429 Too Many Requests) and a queued request (202 Accepted). The demo is sluice serve with a gateway, a durable
queue and ten rules. Synthetic clients send requests in the background, so that sluice top has keys to show.

No configuration is needed. ctrl-C stops the demo and deletes its files.`

const demoExample = `  sluice demo
  sluice demo --listen 127.0.0.1:9000
  sluice demo --rules     # print the rules of the demo and exit`

func demoCommand() *cobra.Command {
	f := demo.Options{Version: version()}
	var rules bool
	c := withoutArguments("demo", "Run a rate-limited demo API on localhost, with curl commands to try",
		demoLong, demoExample, func(c *cobra.Command) error {
			if rules {
				_, err := c.OutOrStdout().Write(demo.Rules)
				return err
			}
			f.Chosen = c.Flags().Changed("listen")
			return demo.Run(c.Context(), f, c.OutOrStdout(), c.ErrOrStderr())
		})
	c.Flags().StringVar(&f.Listen, "listen", "127.0.0.1:8000", "address of the gateway; with port 0 all listeners use free ports")
	c.Flags().BoolVar(&f.NoTraffic, "no-traffic", false, "send no synthetic requests")
	c.Flags().BoolVar(&rules, "rules", false, "print the rules of the demo and exit")
	return c
}
