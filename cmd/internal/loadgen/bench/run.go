// Package bench implements sluice bench: it creates a target from a URL and options, runs the load test with a progress
// display, and writes the report.
package bench

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/sluiceproject/sluice/cmd/internal/loadgen"
	"github.com/sluiceproject/sluice/cmd/internal/loadgen/report"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// Measured is a finished load test.
type Measured struct {
	name     string // URL of the target, without secrets
	protocol string
	plan     loadgen.Plan
	keys     int64
	zipf     bool
	conns    int // 0 means one per caller
	result   *loadgen.Result
	verdicts []loadgen.Verdict
}

// Run runs a load test, writes its progress, and writes the HTML page if one is requested. When ctx is done it ends the load
// and still returns the results so far.
func (o *Options) Run(ctx context.Context, target string, progress io.Writer) (*Measured, error) {
	thresholds, err := o.check()
	if err != nil {
		return nil, err
	}
	b, err := o.aim(ctx, target)
	if err != nil {
		return nil, fmt.Errorf("bench %w", err)
	}
	defer b.plan.Target.Close()
	show := newProgress(progress, &b.plan)
	b.plan.Progress = show.tell
	b.result, err = loadgen.Run(ctx, b.plan)
	show.end()
	if err != nil {
		return nil, fmt.Errorf("bench %s: %w", b.name, err)
	}
	for _, t := range thresholds {
		b.verdicts = append(b.verdicts, t.Check(b.result))
	}
	if o.HTML != "" {
		if err := b.writePage(o.HTML, o.Version); err != nil {
			return nil, fmt.Errorf("--html %s: %w", o.HTML, err)
		}
	}
	return b, nil
}

// Kept reports whether the result meets all thresholds.
func (b *Measured) Kept() bool {
	return !slices.ContainsFunc(b.verdicts, func(v loadgen.Verdict) bool { return !v.Kept })
}

// writePage writes the result as an HTML page with plots.
func (b *Measured) writePage(to, version string) error {
	file, err := os.Create(to)
	if err != nil {
		return err
	}
	err = report.Write(file, report.Page{Target: b.name, How: b.how(), Result: b.result, Verdicts: b.verdicts, Version: version})
	if closing := file.Close(); err == nil {
		err = closing
	}
	return err
}

// aim creates the target from the URL and the options.
func (o *Options) aim(ctx context.Context, target string) (*Measured, error) {
	o.Connections = min(o.Connections, o.Callers)
	a := &benchTarget{o: o, patterns: loadgen.Patterns{Keys: o.Keys}}
	if err := a.parse(ctx, target); err != nil {
		return nil, fmt.Errorf("%s: %w", term.Printable(target), err)
	}
	t, err := a.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.url.Redacted(), err)
	}
	b := &Measured{name: a.url.Redacted(), protocol: a.protocol(), keys: a.patterns.Count(), zipf: o.Distribution == "zipf"}
	b.plan = loadgen.Plan{
		Target: t, Callers: o.Callers, Pipeline: o.Pipeline, Rate: o.Rate, Duration: o.Duration, Requests: o.Requests,
		Warmup: o.Warmup, Timeout: o.Timeout, Keys: loadgen.Keys{Count: b.keys, Seed: o.Seed},
	}
	if b.zipf {
		b.plan.Keys.Zipf = zipfExponent
	}
	if b.protocol == "rls" {
		b.conns = o.Connections
	}
	return b, nil
}

// zipfExponent is roughly that of requests to web sites.
const zipfExponent = 1.1
