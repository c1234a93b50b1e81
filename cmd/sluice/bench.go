package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/loadgen/bench"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

const benchLong = `Send requests to a server, and report how many were allowed and denied, and their latencies.

  rls://HOST:PORT     Envoy's rate limit protocol over gRPC; rlss:// with TLS
  http://, https://   any HTTP server: 2xx is allowed, 429 is denied, anything else an error
  redis://HOST:PORT   CL.THROTTLE over Redis' protocol; rediss:// with TLS

Without --rate (closed loop), each of --concurrency clients sends its next request as soon as it has a response: this
measures throughput. With --rate (open loop), requests are sent on a schedule that does not depend on the server: this
measures latency under load, from the scheduled time of each request.

{1..100} in a descriptor, URL, header, body or key makes 100 variants; {key} is replaced by one of --keys numbers.
The requests use up the limits of the server, so do not test a server in production use. Addresses other than loopback
need --allow-remote. ctrl-C stops the test and prints the results so far.`

const benchExample = `  sluice bench rls://127.0.0.1:8081 --domain demo --descriptor 'remote_address=10.0.0.{1..100}'
  sluice bench http://127.0.0.1:8080/v1/check --domain demo --descriptor 'remote_address=10.0.0.{1..100}'
  sluice bench http://127.0.0.1:3000/api/posts -X POST -H 'X-User: user-{1..50}' --body '{"text":"hello"}'
  sluice bench redis://127.0.0.1:6380 --burst 10 --count 100 --period 60 --keys 1000 --pipeline 16
  sluice bench rls://127.0.0.1:8081 --domain demo --descriptor 'remote_address=10.0.0.{1..100}' \
    --rate 5000 --duration 30s --html report.html --threshold 'p99<5ms' --threshold 'errors<0.1%'`

// benchFlags are the flags of the bench command.
type benchFlags struct {
	bench.Options
	out term.Output
}

func benchCommand() *cobra.Command {
	var f benchFlags
	c := newCommand("bench URL", "Load-test a service or your own API", benchLong, benchExample, f.run)
	c.Args = func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) > 1 && len(f.Descriptors) > 0:
			return fmt.Errorf("%d arguments, 1 is accepted: if the shell expanded the braces, add quotes: --descriptor 'remote_address=10.0.0.{1..100}'", len(args))
		case len(args) != 1:
			return fmt.Errorf("one URL is required: write sluice bench rls://127.0.0.1:8081 --domain demo --descriptor 'remote_address=10.0.0.{1..100}'")
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
	fs.Float64Var(&f.Rate, "rate", 0, "requests per second, sent on a schedule (open loop)")
	fs.IntVar(&f.Callers, "concurrency", 64, "concurrent clients; with --rate, maximum requests in flight")
	fs.IntVar(&f.Pipeline, "pipeline", 1, "requests a client sends before it waits for replies (redis only)")
	fs.IntVar(&f.Connections, "connections", 4, "connections shared by all clients (rls only; otherwise one per client)")
	term.AddDuration(c, &f.Duration, "duration", "d", 10*time.Second, "duration of the test")
	fs.Int64VarP(&f.Requests, "requests", "n", 0, "stop after this number of requests")
	term.AddDuration(c, &f.Warmup, "warmup", "", 0, "duration of unmeasured load before the test")
	term.AddDuration(c, &f.Timeout, "timeout", "", 5*time.Second, "timeout of a request")
	fs.Int64Var(&f.Keys, "keys", 0, "number of keys for {key} (redis: 100)")
	fs.StringVar(&f.Distribution, "distribution", "uniform", "distribution of keys: uniform, or zipf (a few keys get most requests)")
	fs.Uint64Var(&f.Seed, "seed", 1, "seed of the random choice of keys")
	fs.StringVar(&f.Domain, "domain", "", "Envoy domain (rls, and Sluice's check API over http)")
	fs.StringArrayVar(&f.Descriptors, "descriptor", nil, "`descriptor`, key=value[,key=value]; may be repeated")
	fs.Int64Var(&f.Cost, "cost", 1, "cost of a request")
	fs.StringVarP(&f.Method, "method", "X", "", "HTTP method (GET, or POST with a body)")
	fs.StringArrayVarP(&f.Headers, "header", "H", nil, "header of HTTP requests, `'Name: value'`; may be repeated")
	fs.StringVar(&f.Body, "body", "", "body of HTTP requests, or @FILE")
	fs.StringVar(&f.Key, "key", "bench:{key}", "key of CL.THROTTLE")
	fs.Int64Var(&f.Burst, "burst", 10, "max_burst of CL.THROTTLE: burst + 1 requests are allowed at once")
	fs.Int64Var(&f.Count, "count", 100, "count of CL.THROTTLE: requests allowed per period")
	fs.Int64Var(&f.Period, "period", 60, "period of CL.THROTTLE in seconds")
	fs.StringVar(&f.PasswordFile, "password-file", "", "file with the password for AUTH (redis)")
	fs.StringVar(&f.CA, "tls-ca", "", "PEM file with the CA certificates for the server (default: those of the system)")
	fs.BoolVar(&f.AllowRemote, "allow-remote", false, "allow addresses other than loopback")
	fs.StringArrayVar(&f.Thresholds, "threshold", nil, "`condition` on the result, such as 'p99<5ms'; exit with 1 if it fails; may be repeated")
	fs.StringVar(&f.HTML, "html", "", "file to write an HTML report with plots to")
	_ = c.MarkFlagFilename("html", "html")
	term.CompleteFlag(c, "distribution", "uniform", "zipf")
	term.CompleteFlag(c, "threshold", "p99<5ms", "errors<0.1%", "denied>0", "rate>1000")
	for _, name := range []string{"rate", "concurrency", "pipeline", "connections", "duration", "requests", "warmup", "timeout", "keys"} {
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
