package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/cmd/internal/traffic/logs"
	"github.com/sluiceproject/sluice/cmd/internal/traffic/simulate"
)

// simulateFlags are the flags of the simulate command.
type simulateFlags struct {
	out   term.Output
	rules ruleFlags
	logs  logFlags
	paths []string
	user  string
}

const simulateLong = `Replay access logs through rules: the requests of the logs, at the times in the logs, decided by the service's limiter on
a virtual clock. Formats are detected: the access log of Sluice, and those of nginx, Apache, Envoy, Istio, Caddy, Traefik
and AWS load balancers, CSV and JSON lines, optionally compressed with gzip or zstd. - reads standard input. Several logs
are merged in order of time. Values of --format:

  sluice, combined, common, nginx-json, envoy, envoy-json, istio, caddy, traefik, traefik-json, alb, csv, json

Attributes that a rule uses and the log does not contain are listed. The simulation treats such requests as requests
without the attribute.

Exit codes: 0, or 2 if rules or logs cannot be read.`

const simulateExample = `  sluice simulate --rules rules/ /var/log/nginx/access.log
  sluice simulate --rules rules/ access.log.1.gz access.log
  sluice simulate --rules rules/ --user header:X-User access.log -o json
  sluice simulate --rules rules/ --trusted-proxies 10.0.0.0/8 access.log
  sluice simulate --rules rules/ --columns time=TIMESTAMP,user=account requests.csv
  journalctl -o cat -u nginx | sluice simulate --rules rules/ -`

func simulateCommand() *cobra.Command {
	var f simulateFlags
	c := newCommand("simulate --rules RULES LOG...", "Replay an access log through the rules",
		simulateLong, simulateExample, f.run)
	c.Args = func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return errors.New("a log file is required: write sluice simulate --rules rules/ access.log, or - for standard input")
		}
		return nil
	}
	f.out.AddFlag(c)
	f.rules.flags(c)
	f.logs.flags(c)
	c.Flags().StringArrayVar(&f.paths, "rules", nil, "rule `file` or directory; may be repeated (default: current directory)")
	c.Flags().StringVar(&f.user, "user", "", "`attribute` for the user of a line, such as header:X-User")
	_ = c.RegisterFlagCompletionFunc("rules", term.CompleteRules)
	term.CompleteFlag(c, "user")
	return c
}

func (f *simulateFlags) run(c *cobra.Command, names []string) error {
	loaded, err := f.rules.load(c.Context(), f.paths)
	if err != nil {
		return err
	}
	sources, closeAll, err := logs.Open(c.Context(), names, c.InOrStdin())
	if err != nil {
		return err
	}
	defer closeAll()
	progress := term.NewProgress(c.ErrOrStderr(), "sluice simulate", "request")
	report, err := simulate.Replay(c.Context(), simulate.Config{
		Set: loaded.Set, Logs: sources, Options: f.logs.options(), User: f.user, Progress: progress.Report,
	})
	progress.End()
	if errors.Is(err, simulate.ErrNoRequests) {
		return unreadable(report)
	}
	if err != nil {
		return err
	}
	if f.out.IsJSON() {
		return term.WriteJSON(c.OutOrStdout(), report.JSON())
	}
	return report.WriteText(c.OutOrStdout())
}

// unreadable returns the error for logs that contain no requests.
func unreadable(r *simulate.Report) error {
	for i := range r.Logs {
		if l := &r.Logs[i]; l.Skipped > 0 {
			return fmt.Errorf("%s: no request is subject to rules: the log contains only CORS preflights, requests below /.sluice and deliveries of queued requests", term.Printable(l.Name))
		}
	}
	return errors.New("the logs contain no lines")
}
