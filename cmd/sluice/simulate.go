package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/cmd/internal/traffic/logs"
	"github.com/sluiceproject/sluice/cmd/internal/traffic/simulate"
)

// simulateFlags are what simulate is asked.
type simulateFlags struct {
	out   term.Output
	rules ruleFlags
	paths []string
	user  string
}

const simulateLong = `Replay access logs through rules: the requests of the logs, at the times of the logs, through the limiter of a
server. It reads the gateway's own log and the common and combined formats of nginx and Apache, also packed by
gzip; - is standard input. Several logs are replayed together in the order of time.

What a rule asks for and the log does not tell is listed: such a rule takes all requests for ones without it.
It ends with 0, or 2 if rules or logs cannot be read.`

const simulateExample = `  sluice simulate --rules rules/ /var/log/nginx/access.log
  sluice simulate --rules rules/ access.log.1.gz access.log
  sluice simulate --rules rules/ --user header:X-User access.log -o json
  zstdcat access.log.zst | sluice simulate --rules rules/ -`

func simulateCommand() *cobra.Command {
	var f simulateFlags
	c := newCommand("simulate --rules RULES LOG...", "Say what the rules would have made of an access log",
		simulateLong, simulateExample, f.run)
	c.Args = func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return errors.New("say which log: sluice simulate --rules rules/ access.log, or - for standard input")
		}
		return nil
	}
	f.out.AddFlag(c)
	f.rules.flags(c)
	c.Flags().StringArrayVar(&f.paths, "rules", nil, "rule file or directory; may be repeated (default: here)")
	c.Flags().StringVar(&f.user, "user", "", "what rules call the user of a line, such as header:X-User (attr:user and basic_user are so anyway)")
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
	progress := &simulateProgress{w: c.ErrOrStderr(), began: time.Now()}
	report, err := simulate.Replay(c.Context(), simulate.Config{Set: loaded.Set, Logs: sources, User: f.user, Progress: progress.tell})
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

// unreadable says why logs hold no request.
func unreadable(r *simulate.Report) error {
	for i := range r.Logs {
		if l := &r.Logs[i]; l.Bad > 0 {
			return fmt.Errorf("%s: no line is one of an access log; line %d: %w", term.Printable(l.Name), l.Faults[0].Line, l.Faults[0].Err)
		}
	}
	for i := range r.Logs {
		if l := &r.Logs[i]; l.Skipped > 0 {
			return fmt.Errorf("%s: no line is of a request that rules count: there are only CORS preflights, requests below /.sluice and deliveries", term.Printable(l.Name))
		}
	}
	return errors.New("the logs are empty")
}

// simulateProgress tells now and then how far a long replay is.
type simulateProgress struct {
	w     io.Writer
	began time.Time
	told  time.Duration
}

func (p *simulateProgress) tell(requests int64) {
	if d := time.Since(p.began); d-p.told >= progressInterval {
		p.told = d
		fmt.Fprintf(p.w, "sluice simulate: %d requests, %.0f a second\n", requests, float64(requests)/d.Seconds())
	}
}

// progressInterval is how often progress is told where it is no bar.
const progressInterval = 5 * time.Second
