package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/cmd/internal/operate/logwriter"
	"github.com/sluiceproject/sluice/cmd/internal/rulework/fileerrors"
	"github.com/sluiceproject/sluice/cmd/internal/serve"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

const serveLong = `Run the rate limit service. Its listeners:

  grpc     Envoy's rate limit protocol (RLS v3)
  http     check API (JSON), forward authentication for other proxies, health checks
  admin    admin API, which the commands for a running service use
  resp     Redis protocol (CL.THROTTLE); only if listeners.resp.address is set
  gateway  reverse proxy that denies, delays or queues requests over a limit; only if listeners.gateway.address is set

Without a configuration file, the service counts in memory, listens on loopback addresses only and has a demo rule.

Rules and certificates are reloaded when their files change, and on SIGHUP. SIGTERM shuts the service down gracefully:
requests in flight finish.`

const serveExample = `  sluice serve
  sluice serve --config sluice.yaml
  sluice check sluice.yaml             # check the configuration file and the rule files it names`

func serveCommand() *cobra.Command {
	var file string
	c := withoutArguments("serve", "Run the rate limit service, or an API gateway",
		serveLong, serveExample, func(c *cobra.Command) error {
			cfg, o := config.Default(), serve.Options{Version: version(), Log: c.ErrOrStderr()}
			if file != "" {
				var source *config.Source
				var err error
				if cfg, source, err = config.LoadSource(file); err != nil {
					return fileerrors.InConfig(err, file)
				}
				o.Changed = source.Changed
			}
			return runServe(c.Context(), cfg, o, c.OutOrStdout())
		})
	c.Flags().StringVarP(&file, "config", "c", "", "configuration file (YAML)")
	_ = c.MarkFlagFilename("config", "yaml", "yml")
	return c
}

// runServe runs the service until ctx is done. Without rule files it prints commands to try the built-in demo rule.
func runServe(ctx context.Context, cfg config.Config, o serve.Options, stdout io.Writer) error {
	out := logwriter.New(logwriter.Config{Output: stdout})
	defer out.Close(term.OutputTimeout)
	o.Background = func(_ context.Context, s *serve.Service) { s.WriteBanner(out) }
	s, err := serve.New(ctx, cfg, o)
	if err != nil {
		return err
	}
	return s.Run(ctx)
}
