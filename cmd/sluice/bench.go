package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/loadgen/bench"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

const benchLong = `Ask a server as hard as told, and say how many requests were allowed and denied and how long they took.

  rls://HOST:PORT     Envoy's rate limit protocol over gRPC; rlss:// with TLS
  http://, https://   any HTTP server: 2xx is allowed, 429 is denied, anything else an error
  redis://HOST:PORT   CL.THROTTLE over Redis' protocol; rediss:// with TLS

Without --rate, --callers ask again as soon as they have an answer: what can the server do? With --rate, requests are
sent on a schedule whatever the server does: how long do callers wait? Latency then counts from when a request was due.

{1..100} in a descriptor, URL, header, body or key makes a hundred different ones; {key} stands for one of --keys.
Limits count these requests: do not aim it at a server whose limits others need. Only loopback addresses are asked
unless --allow-remote is given. ctrl-C ends it with the results so far.`

const benchExample = `  sluice bench rls://127.0.0.1:8081 --domain demo --descriptor 'remote_address=10.0.0.{1..100}'
  sluice bench http://127.0.0.1:8080/v1/check --domain demo --descriptor 'remote_address=10.0.0.{1..100}'
  sluice bench http://127.0.0.1:3000/api/posts -X POST -H 'X-User: user-{1..50}' --body '{"text":"hello"}'
  sluice bench redis://127.0.0.1:6380 --burst 10 --count 100 --period 60 --keys 1000 --pipeline 16
  sluice bench rls://127.0.0.1:8081 --domain demo --descriptor 'remote_address=10.0.0.{1..100}' \
    --rate 5000 --duration 30s --html report.html --threshold 'p99<5ms' --threshold 'errors<0.1%'`

// benchFlags are what bench is asked.
type benchFlags struct {
	bench.Options
	out term.Output
}

func benchCommand() *cobra.Command {
	var f benchFlags
	c := newCommand("bench URL", "Put load on a service or on your own API, and measure", benchLong, benchExample, f.run)
	c.Args = func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) > 1 && len(f.Descriptors) > 0:
			return fmt.Errorf("%d arguments: if the shell took your braces, put quotes around them: --descriptor 'remote_address=10.0.0.{1..100}'", len(args))
		case len(args) != 1:
			return fmt.Errorf("say what to ask, for example: sluice bench rls://127.0.0.1:8081 --domain demo --descriptor 'remote_address=10.0.0.{1..100}'")
		}
		return nil
	}
	c.ValidArgsFunction = cobra.FixedCompletions([]string{"rls://127.0.0.1:8081", "http://127.0.0.1:8080/v1/check", "redis://127.0.0.1:6380"},
		cobra.ShellCompDirectiveNoFileComp)
	f.flags(c)
	return c
}

func (f *benchFlags) flags(c *cobra.Command) {
	f.out.AddFlag(c)
	fs := c.Flags()
	fs.Float64Var(&f.Rate, "rate", 0, "send so many requests a second on a schedule (open loop)")
	fs.IntVar(&f.Callers, "callers", 64, "how many ask at once; with --rate, at most")
	fs.IntVar(&f.Pipeline, "pipeline", 1, "requests a caller sends before it waits for answers (redis only)")
	fs.IntVar(&f.Connections, "connections", 4, "that callers share (rls only; others have one each)")
	term.AddDuration(c, &f.Duration, "duration", "d", 10*time.Second, "how long")
	fs.Int64VarP(&f.Requests, "requests", "n", 0, "end after so many requests")
	term.AddDuration(c, &f.Warmup, "warmup", "", 0, "ask so long before measuring")
	term.AddDuration(c, &f.Timeout, "timeout", "", 5*time.Second, "how long to wait for an answer")
	fs.Int64Var(&f.Keys, "keys", 0, "how many keys {key} stands for (redis: 100)")
	fs.StringVar(&f.Distribution, "distribution", "uniform", "how keys are chosen: uniform, or zipf (few get most)")
	fs.Uint64Var(&f.Seed, "seed", 1, "of the choice of keys")
	fs.StringVar(&f.Domain, "domain", "", "domain to ask about (rls, and Sluice's check API over http)")
	fs.StringArrayVar(&f.Descriptors, "descriptor", nil, "descriptor, key=value[,key=value]; may be repeated")
	fs.Int64Var(&f.Cost, "cost", 1, "what a request costs")
	fs.StringVarP(&f.Method, "method", "X", "", "HTTP method (GET, or POST with a body)")
	fs.StringArrayVarP(&f.Headers, "header", "H", nil, "header of HTTP requests, 'Name: value'; may be repeated")
	fs.StringVar(&f.Body, "body", "", "body of HTTP requests, or @FILE")
	fs.StringVar(&f.Key, "key", "bench:{key}", "key of CL.THROTTLE")
	fs.Int64Var(&f.Burst, "burst", 10, "burst of CL.THROTTLE: one less than may come at once")
	fs.Int64Var(&f.Count, "count", 100, "how many per period")
	fs.Int64Var(&f.Period, "period", 60, "in seconds")
	fs.StringVar(&f.PasswordFile, "password-file", "", "file with the password for AUTH (redis)")
	fs.StringVar(&f.CA, "ca", "", "file with who signed the server's certificate, PEM; default: who the system trusts")
	fs.BoolVar(&f.AllowRemote, "allow-remote", false, "ask a server that is not on this machine")
	fs.StringArrayVar(&f.Thresholds, "threshold", nil, "what the result must keep to, such as 'p99<5ms'; otherwise the exit code is 1")
	fs.StringVar(&f.HTML, "html", "", "write a report with plots to this file")
	_ = c.MarkFlagFilename("html", "html")
	term.CompleteFlag(c, "distribution", "uniform", "zipf")
	term.CompleteFlag(c, "threshold", "p99<5ms", "errors<0.1%", "denied>0", "rate>1000")
	for _, name := range []string{"rate", "callers", "pipeline", "connections", "duration", "requests", "warmup", "timeout", "keys"} {
		term.CompleteFlag(c, name)
	}
}

func (f *benchFlags) run(c *cobra.Command, args []string) error {
	f.DurationGiven, f.Version = c.Flags().Changed("duration"), version()
	m, err := f.Run(c.Context(), args[0], c.ErrOrStderr())
	if err != nil {
		return err
	}
	return writeResult(c, &f.out, m.Report(), m.WriteText, !m.Kept())
}
