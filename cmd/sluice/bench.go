package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/loadgen"
	"github.com/sluiceproject/sluice/cmd/internal/loadgen/report"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// benchFlags are what bench is asked.
type benchFlags struct {
	out term.Output

	rate        float64
	callers     int
	pipeline    int
	connections int
	duration    time.Duration
	requests    int64
	warmup      time.Duration
	timeout     time.Duration

	keys         int64
	distribution string
	seed         uint64

	domain      string
	descriptors []string
	cost        int64

	method  string
	headers []string
	body    string

	key                  string
	burst, count, period int64
	passwordFile         string

	ca          string
	allowRemote bool
	thresholds  []string
	html        string
}

// Bounds of a load, so that a slip of the finger takes nothing down.
const (
	mostCallers  = 10_000
	mostPipeline = 1_000
	mostConns    = 1_000
	mostRate     = 1_000_000
	mostDuration = 24 * time.Hour
	mostRequests = 1_000_000_000
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

func benchCommand() *cobra.Command {
	var f benchFlags
	c := &cobra.Command{
		Use:     "bench URL",
		Short:   "Put load on a service or on your own API, and measure",
		Long:    benchLong,
		Example: benchExample,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) > 1 && len(f.descriptors) > 0:
				return fmt.Errorf("%d arguments: if the shell took your braces, put quotes around them: --descriptor 'remote_address=10.0.0.{1..100}'", len(args))
			case len(args) != 1:
				return fmt.Errorf("say what to ask, for example: sluice bench rls://127.0.0.1:8081 --domain demo --descriptor 'remote_address=10.0.0.{1..100}'")
			}
			return nil
		},
		ValidArgsFunction: cobra.FixedCompletions([]string{"rls://127.0.0.1:8081", "http://127.0.0.1:8080/v1/check", "redis://127.0.0.1:6380"},
			cobra.ShellCompDirectiveNoFileComp),
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args[0]) },
	}
	f.flags(c)
	return c
}

func (f *benchFlags) flags(c *cobra.Command) {
	f.out.AddFlag(c)
	fs := c.Flags()
	fs.Float64Var(&f.rate, "rate", 0, "send so many requests a second on a schedule (open loop)")
	fs.IntVar(&f.callers, "callers", 64, "how many ask at once; with --rate, at most")
	fs.IntVar(&f.pipeline, "pipeline", 1, "requests a caller sends before it waits for answers (redis only)")
	fs.IntVar(&f.connections, "connections", 4, "that callers share (rls only; others have one each)")
	fs.DurationVarP(&f.duration, "duration", "d", 10*time.Second, "how long")
	fs.Int64VarP(&f.requests, "requests", "n", 0, "end after so many requests")
	fs.DurationVar(&f.warmup, "warmup", 0, "ask so long before measuring")
	fs.DurationVar(&f.timeout, "timeout", 5*time.Second, "how long to wait for an answer")
	fs.Int64Var(&f.keys, "keys", 0, "how many keys {key} stands for (redis: 100)")
	fs.StringVar(&f.distribution, "distribution", "uniform", "how keys are chosen: uniform, or zipf (few get most)")
	fs.Uint64Var(&f.seed, "seed", 1, "of the choice of keys")
	fs.StringVar(&f.domain, "domain", "", "domain to ask about (rls, and Sluice's check API over http)")
	fs.StringArrayVar(&f.descriptors, "descriptor", nil, "descriptor, key=value[,key=value]; may be repeated")
	fs.Int64Var(&f.cost, "cost", 1, "what a request costs")
	fs.StringVarP(&f.method, "method", "X", "", "HTTP method (GET, or POST with a body)")
	fs.StringArrayVarP(&f.headers, "header", "H", nil, "header of HTTP requests, 'Name: value'; may be repeated")
	fs.StringVar(&f.body, "body", "", "body of HTTP requests, or @FILE")
	fs.StringVar(&f.key, "key", "bench:{key}", "key of CL.THROTTLE")
	fs.Int64Var(&f.burst, "burst", 10, "burst of CL.THROTTLE: one less than may come at once")
	fs.Int64Var(&f.count, "count", 100, "how many per period")
	fs.Int64Var(&f.period, "period", 60, "in seconds")
	fs.StringVar(&f.passwordFile, "password-file", "", "file with the password for AUTH (redis)")
	fs.StringVar(&f.ca, "ca", "", "file with who signed the server's certificate, PEM; default: who the system trusts")
	fs.BoolVar(&f.allowRemote, "allow-remote", false, "ask a server that is not on this machine")
	fs.StringArrayVar(&f.thresholds, "threshold", nil, "what the result must keep to, such as 'p99<5ms'; otherwise the exit code is 1")
	fs.StringVar(&f.html, "html", "", "write a report with plots to this file")
	_ = c.MarkFlagFilename("html", "html")
	term.CompleteFlag(c, "distribution", "uniform", "zipf")
	term.CompleteFlag(c, "threshold", "p99<5ms", "errors<0.1%", "denied>0", "rate>1000")
	for _, name := range []string{"rate", "callers", "pipeline", "connections", "duration", "requests", "warmup", "timeout", "keys"} {
		term.CompleteFlag(c, name)
	}
}

func (f *benchFlags) run(c *cobra.Command, target string) error {
	var thresholds []loadgen.Threshold
	for _, text := range f.thresholds {
		t, err := loadgen.ParseThreshold(text)
		if err != nil {
			return fmt.Errorf("--threshold %w", err)
		}
		thresholds = append(thresholds, t)
	}
	if err := f.check(c); err != nil {
		return err
	}
	if f.html != "" { // better now than after the run
		if info, err := os.Stat(filepath.Dir(f.html)); err != nil || !info.IsDir() {
			return fmt.Errorf("--html %s: there is no directory %s", f.html, filepath.Dir(f.html))
		}
	}
	b, err := f.aim(c.Context(), target)
	if err != nil {
		return fmt.Errorf("bench %w", err)
	}
	defer b.plan.Target.Close()
	show := newBenchProgress(c.ErrOrStderr(), &b.plan)
	b.plan.Progress = show.tell
	// An interrupt ends the load and not the report of it.
	result, err := loadgen.Run(c.Context(), b.plan)
	show.end()
	if err != nil {
		return fmt.Errorf("bench %s: %w", b.name, err)
	}
	b.result = result
	kept := true
	for _, t := range thresholds {
		v := t.Check(result)
		kept = kept && v.Kept
		b.verdicts = append(b.verdicts, v)
	}
	if err := f.write(c, b); err != nil {
		return err
	}
	if !kept {
		return term.ErrFindings
	}
	return nil
}

// write writes the results where they were asked for.
func (f *benchFlags) write(c *cobra.Command, b *benched) error {
	if f.html != "" {
		file, err := os.Create(f.html)
		if err != nil {
			return fmt.Errorf("--html: %w", err)
		}
		err = report.Write(file, report.Page{
			Target: b.name, How: b.how(), Result: b.result, Verdicts: b.verdicts, Version: version(),
		})
		if closing := file.Close(); err == nil {
			err = closing
		}
		if err != nil {
			return fmt.Errorf("--html %s: %w", f.html, err)
		}
	}
	if f.out.IsJSON() {
		return term.WriteJSON(c.OutOrStdout(), b.json())
	}
	return b.write(c.OutOrStdout())
}

// check refuses numbers that make no sense or are too large.
func (f *benchFlags) check(c *cobra.Command) error {
	for _, n := range []struct {
		name     string
		value    int64
		from, to int64
	}{
		{"callers", int64(f.callers), 1, mostCallers},
		{"pipeline", int64(f.pipeline), 1, mostPipeline},
		{"connections", int64(f.connections), 1, mostConns},
		{"keys", f.keys, 0, loadgen.MostKeys},
		{"requests", f.requests, 0, mostRequests},
		{"cost", f.cost, 1, 1 << 31},
	} {
		if n.value < n.from || n.value > n.to {
			return fmt.Errorf("--%s %d: write a number from %d to %d", n.name, n.value, n.from, n.to)
		}
	}
	switch {
	case !(f.rate >= 0 && f.rate <= mostRate):
		return fmt.Errorf("--rate %v: write requests a second, up to %d", f.rate, mostRate)
	case f.duration <= 0 || f.duration > mostDuration:
		return fmt.Errorf("--duration %v: write how long, such as 10s, up to %v", f.duration, mostDuration)
	case f.warmup < 0 || f.warmup > mostDuration:
		return fmt.Errorf("--warmup %v: write how long, such as 2s", f.warmup)
	case f.timeout <= 0 || f.timeout > time.Hour:
		return fmt.Errorf("--timeout %v: write how long, such as 5s", f.timeout)
	case f.distribution != "uniform" && f.distribution != "zipf":
		return fmt.Errorf("--distribution %s: write uniform or zipf", f.distribution)
	}
	if f.requests > 0 && !c.Flags().Changed("duration") {
		f.duration = mostDuration // as many as asked for, however long it takes
	}
	return nil
}

// A benched server is what is asked, how, and what came of it.
type benched struct {
	name     string // its address, without secrets
	protocol string
	plan     loadgen.Plan
	keys     int64
	zipf     bool
	conns    int // 0: each caller has one
	result   *loadgen.Result
	verdicts []loadgen.Verdict
}

// aim makes the target that a URL and the flags name.
func (f *benchFlags) aim(ctx context.Context, target string) (*benched, error) {
	f.connections = min(f.connections, f.callers)
	a := &aimed{f: f, patterns: loadgen.Patterns{Keys: f.keys}}
	if err := a.parse(ctx, target); err != nil {
		return nil, fmt.Errorf("%s: %w", term.Printable(target), err)
	}
	t, err := a.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.url.Redacted(), err)
	}
	b := &benched{name: a.url.Redacted(), protocol: a.protocol(), keys: a.patterns.Count(), zipf: f.distribution == "zipf"}
	b.plan = loadgen.Plan{
		Target: t, Callers: f.callers, Pipeline: f.pipeline, Rate: f.rate, Duration: f.duration, Requests: f.requests,
		Warmup: f.warmup, Timeout: f.timeout, Keys: loadgen.Keys{Count: b.keys, Seed: f.seed},
	}
	if b.zipf {
		b.plan.Keys.Zipf = zipfExponent
	}
	if b.protocol == "rls" {
		b.conns = f.connections
	}
	return b, nil
}

// zipfExponent is that of requests to web sites, roughly.
const zipfExponent = 1.1
