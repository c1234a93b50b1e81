package bench

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/loadgen"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// paced responds on a virtual clock: 1 of 3 requests is denied, and every 100th is slow.
type paced struct{ asked atomic.Int64 }

func (p *paced) Dial(context.Context) (loadgen.Caller, error) { return p, nil }
func (p *paced) Close() error                                 { return nil }

func (p *paced) Ask(ctx context.Context, keys []int64, answered func(loadgen.Answer)) error {
	for range keys {
		n := p.asked.Add(1)
		took := time.Duration(n%7+1) * 301 * time.Microsecond
		if n%100 == 0 {
			took = 80 * time.Millisecond
		}
		select {
		case <-time.After(took):
		case <-ctx.Done():
			return ctx.Err()
		}
		if n%250 == 0 {
			return fmt.Errorf("read tcp 127.0.0.1:%d->127.0.0.1:8081: connection reset", n)
		}
		a := loadgen.Answer{Kind: loadgen.Allowed, Code: "OK"}
		if n%3 == 0 {
			a = loadgen.Answer{Kind: loadgen.Denied, Code: "OVER_LIMIT"}
		}
		answered(a)
	}
	return nil
}

var update = flag.Bool("update", false, "write the reports")

// The reports match testdata; go test -update writes them.
func TestReports(t *testing.T) {
	for name, plan := range map[string]loadgen.Plan{
		"closed": {Callers: 1, Requests: 1000},
		"open":   {Callers: 1, Requests: 1000, Rate: 450},
	} {
		var text, js bytes.Buffer
		synctest.Test(t, func(t *testing.T) {
			b := &Measured{name: "rls://127.0.0.1:8081", protocol: "rls", plan: plan, keys: 100, conns: 4, zipf: name == "open"}
			b.plan.Target, b.plan.Timeout = new(paced), time.Second
			var err error
			if b.result, err = loadgen.Run(t.Context(), b.plan); err != nil {
				t.Fatal(err)
			}
			for _, s := range []string{"p99<5ms", "errors<1%", "denied>0"} {
				th, err := loadgen.ParseThreshold(s)
				if err != nil {
					t.Fatal(err)
				}
				b.verdicts = append(b.verdicts, th.Check(b.result))
			}
			if err := b.WriteText(&text); err != nil {
				t.Fatal(err)
			}
			report := b.Report()
			report.Series = report.Series[:min(2, len(report.Series))]
			if err := term.WriteJSON(&js, report); err != nil {
				t.Fatal(err)
			}
		})
		for file, got := range map[string]string{name + ".text": text.String(), name + ".json": js.String()} {
			file = filepath.Join("testdata", file)
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if want, err := os.ReadFile(file); err != nil || got != string(want) {
				t.Errorf("%s differs (%v); go test -update writes the new report:\n%s", file, err, got)
			}
		}
	}
}

// Progress is a line every 5 s for files, and nothing for short loads.
func TestProgress(t *testing.T) {
	var b bytes.Buffer
	p := newProgress(&b, &loadgen.Plan{Duration: 10 * time.Second, Warmup: time.Second})
	p.tell(loadgen.Progress{Warmup: true, Elapsed: time.Second, Allowed: 3})
	for s := range 10 {
		p.tell(loadgen.Progress{Elapsed: time.Duration(s+1) * time.Second, Allowed: int64(s), Denied: 2, PerSecond: 7, P99: 1234567})
	}
	p.end()
	want := "sluice bench: 5s, 7/s, p99 1.23ms, 4 allowed, 2 denied, 0 errors\n" +
		"sluice bench: 10s, 7/s, p99 1.23ms, 9 allowed, 2 denied, 0 errors\n"
	if b.String() != want {
		t.Errorf("%s", b.String())
	}
	b.Reset()
	p = newProgress(&b, p.plan)
	p.terminal = true
	p.tell(loadgen.Progress{Elapsed: 5 * time.Second})
	p.end()
	if got := b.String(); !strings.Contains(got, "[============            ] 5s") || !strings.HasSuffix(got, "\r\x1b[K") {
		t.Errorf("%q", got)
	}
}
