package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/cmd/internal/traffic/logs"
	"github.com/sluiceproject/sluice/cmd/internal/traffic/recommend"
)

// recommendFlags are the flags of the recommend command.
type recommendFlags struct {
	recommend.Request
	out  term.Output
	logs logFlags
}

const recommendLong = `Recommend a limit from access logs: a rate and the smallest burst that leaves a share of the clients untouched, with the
evidence. Every second time block trains the limit, the others validate it. Crawlers, and clients that need far more than
the others, do not raise it. The limit is replayed through the service's limiter on a virtual clock.

The output has a rule and a rule test, ready to paste. --write adds both to a directory of rules, in shadow mode. Keys are
masked, because they are personal data. The formats of the logs are those of sluice simulate; - reads standard input.

Exit codes: 0, or 2 if the logs cannot be read or no limit fits them.`

const recommendExample = `  sluice recommend access.log
  sluice recommend --key header:X-Api-Key --untouched 99% --capacity 500/s access.log
  sluice recommend --key all --cost field:ContextTokens+GeneratedTokens --rate 10k/s llm-requests.csv
  sluice recommend --for queue --rate 10/s access.log
  sluice recommend --for concurrency access.log
  sluice recommend --name requests-per-ip --write rules/ access.log.1.gz access.log`

func recommendCommand() *cobra.Command {
	var f recommendFlags
	c := newCommand("recommend LOG...", "Recommend a limit from an access log", recommendLong, recommendExample, f.run)
	c.Args = func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return errors.New("a log file is required: write sluice recommend access.log, or - for standard input")
		}
		return nil
	}
	f.out.AddFlag(c)
	f.logs.flags(c)
	fs := c.Flags()
	fs.StringVar(&f.Key, "key", "ip", "key: ip, ip/24, user, header:NAME, field:NAME, several joined by +, or all")
	fs.StringVar(&f.Untouched, "untouched", "99.9%", "share of the clients to deny nothing to")
	fs.StringArrayVar(&f.Rates, "rate", nil, "`rate` to find the burst for, such as 5.6/s; may be repeated (default: from the traffic)")
	term.AddDuration(c, &f.Block, "block", "", 0, "length of a time block (default: from the time span)")
	fs.StringVar(&f.Capacity, "capacity", "", "`rate` that all keys together must not exceed, such as 500/s")
	fs.StringVar(&f.Cost, "cost", "", "cost of a request: bytes_in, bytes_out, cost, field:NAME, or a sum (default: 1)")
	fs.StringVar(&f.For, "for", "deny", "use of the limit: deny, queue or concurrency")
	fs.StringVar(&f.Name, "name", "recommended", "name of the rule and its files")
	fs.StringVar(&f.Write, "write", "", "`directory` of rule files to add the rule to, in shadow mode, with its test")
	fs.BoolVar(&f.ShowKeys, "show-keys", false, "print keys unmasked")
	_ = c.MarkFlagDirname("write")
	term.CompleteFlag(c, "key", "ip", "user", "header:X-Api-Key", "all")
	term.CompleteFlag(c, "for", "deny", "queue", "concurrency")
	for _, name := range []string{"untouched", "rate", "block", "capacity", "cost", "name"} {
		term.CompleteFlag(c, name)
	}
	return c
}

func (f *recommendFlags) run(c *cobra.Command, names []string) error {
	sources, closeAll, err := logs.Open(c.Context(), names, c.InOrStdin())
	if err != nil {
		return err
	}
	defer closeAll()
	merged, err := logs.OpenAll(sources, f.logs.options())
	if err != nil {
		return err
	}
	progress := term.NewProgress(c.ErrOrStderr(), "sluice recommend", "request")
	f.Progress, f.Proxies = progress.Report, f.logs.proxies
	report, err := recommend.Logs(c.Context(), merged, f.Request)
	progress.End()
	if errors.Is(err, recommend.ErrNoRequests) {
		return fmt.Errorf("%w: the logs contain no line with the key %s", err, term.Printable(f.Key))
	}
	if err != nil {
		return err
	}
	return writeResult(c, &f.out, report.JSON(), report.WriteText, false)
}
