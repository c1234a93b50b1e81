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

func serveCommand() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run the rate limit service, or a gateway",
		Long: "Run the rate limit service: Envoy's protocol (RLS v3) over gRPC; checks in JSON, questions of other\n" +
			"proxies and health over HTTP; Redis clients (CL.THROTTLE) if listeners.resp.address is set; and a listener for\n" +
			"operators. With listeners.gateway.address it is a gateway too: a reverse proxy that limits, delays or keeps what\n" +
			"comes too fast, before an API that need not be changed.\n" +
			"Without a configuration it keeps counts in memory, listens on this machine only and has one limit to try.\n\n" +
			"Rules and certificates are read again when they change, and on SIGHUP. SIGTERM ends it without failed requests.",
		Example: "  sluice serve\n" +
			"  sluice serve --config sluice.yaml\n" +
			"  sluice check sluice.yaml             # is it sound? The rules it names are checked too",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg := config.Default()
			if file != "" {
				var err error
				if cfg, err = config.Load(file); err != nil {
					return faults.InConfig(err, file)
				}
			}
			return runServe(c.Context(), cfg, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	c.Flags().StringVarP(&file, "config", "c", "", "the configuration, a YAML file")
	_ = c.MarkFlagFilename("config", "yaml", "yml")
	return c
}

// runServe runs the service, and tells who has no rules yet how to try it.
func runServe(ctx context.Context, cfg config.Config, stdout, stderr io.Writer) error {
	out := logwriter.New(logwriter.Config{Output: stdout})
	defer out.Close(term.OutputTimeout)
	s, err := serve.New(ctx, cfg, serve.Options{
		Version: version(), Log: stderr, Background: func(_ context.Context, s *serve.Service) { s.WriteBanner(out) },
	})
	if err != nil {
		return err
	}
	return s.Run(ctx)
}
