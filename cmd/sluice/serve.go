package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/cmd/internal/operate/logwriter"
	"github.com/sluiceproject/sluice/cmd/internal/rulework/faults"
	"github.com/sluiceproject/sluice/cmd/internal/serve"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

const serveLong = `Run the rate limit service: Envoy's protocol (RLS v3) over gRPC; checks in JSON, questions of other
proxies and health over HTTP; Redis clients (CL.THROTTLE) if listeners.resp.address is set; and a listener for
operators. With listeners.gateway.address it is a gateway too: a reverse proxy that limits, delays or keeps what
comes too fast, before an API that need not be changed.
Without a configuration it keeps counts in memory, listens on this machine only and has one limit to try.

Rules and certificates are read again when they change, and on SIGHUP. SIGTERM ends it without failed requests.`

const serveExample = `  sluice serve
  sluice serve --config sluice.yaml
  sluice check sluice.yaml             # is it sound? The rules it names are checked too`

func serveCommand() *cobra.Command {
	var file string
	c := withoutArguments("serve", "Run the rate limit service, or a gateway",
		serveLong, serveExample, func(c *cobra.Command) error {
			cfg, o := config.Default(), serve.Options{Version: version(), Log: c.ErrOrStderr()}
			if file != "" {
				var source *config.Source
				var err error
				if cfg, source, err = config.LoadSource(file); err != nil {
					return faults.InConfig(err, file)
				}
				o.Changed = source.Changed
			}
			return runServe(c.Context(), cfg, o, c.OutOrStdout())
		})
	c.Flags().StringVarP(&file, "config", "c", "", "the configuration, a YAML file")
	_ = c.MarkFlagFilename("config", "yaml", "yml")
	return c
}

// runServe runs the service, and tells who has no rules yet how to try it.
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
