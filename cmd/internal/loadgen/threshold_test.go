package loadgen_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/loadgen"
)

func resultOf(allowed, denied, failed int64, latencies ...time.Duration) *loadgen.Result {
	r := &loadgen.Result{Elapsed: 2 * time.Second, Sum: loadgen.Point{Allowed: allowed, Denied: denied, Failed: failed}}
	for _, d := range latencies {
		r.Sum.Latency.Record(d)
	}
	return r
}

func TestThresholds(t *testing.T) {
	r := resultOf(900, 99, 1, time.Millisecond, 4*time.Millisecond)
	for text, want := range map[string]string{
		"p50<2ms":         "true 1ms",
		"p99<5ms":         "true 4ms",
		"p99<4ms":         "false 4ms",
		"p99<=4ms":        "true 4ms",
		"p99.9 > 4ms":     "false 4ms",
		"max >= 4ms":      "true 4ms",
		"min<1ms":         "false 1ms",
		"mean<=2.5ms":     "true 2.5ms",
		"errors<0.1%":     "false 0.1%",
		"errors<=0.1%":    "true 0.1%",
		"errors<2":        "true 1",
		"denied>0":        "true 99",
		"denied>10%":      "false 9.9%",
		"allowed>=90%":    "true 90%",
		"requests>=1000":  "true 1000",
		"rate>499":        "true 499.5",
		"rate>1000":       "false 499.5",
		"p100<1h":         "true 4ms",
		"p0<1h":           "true 1ms",
		"errors<1e3":      "true 1",
		"  errors  <  2 ": "true 1",
	} {
		th, err := loadgen.ParseThreshold(text)
		if err != nil {
			t.Error(err)
			continue
		}
		if v := th.Check(r); fmt.Sprint(v.Kept, " ", v.Got) != want {
			t.Errorf("%s: %v %s, want %s", text, v.Kept, v.Got, want)
		}
	}
}

// A threshold on a value that was not measured fails.
func TestThresholdsOfNothing(t *testing.T) {
	for _, text := range []string{"p99<1h", "p99>0s", "mean<1h", "errors<100%", "denied>=0%"} {
		th, err := loadgen.ParseThreshold(text)
		if err != nil {
			t.Fatal(err)
		}
		if v := th.Check(resultOf(0, 0, 0)); v.Kept {
			t.Errorf("%s passes, with %s", text, v.Got)
		}
	}
}

func TestThresholdFaults(t *testing.T) {
	for _, text := range []string{
		"", "p99", "p99<", "<5ms", "p99<5", "p99<x", "p99=5ms", "p999<5ms", "p<5ms", "q99<5ms", "errors<5ms", "errors<-1",
		"errors<NaN", "rate>Inf", "rate>10%", "requests<5%", "p99<-5ms", "P99<5ms", "p99 < 5 ms",
	} {
		if th, err := loadgen.ParseThreshold(text); err == nil || !strings.Contains(err.Error(), "write a condition such as p99<5ms") {
			t.Errorf("%q is parsed as %v: %v", text, th, err)
		}
	}
}

// The text of a valid threshold parses to the same threshold, and can be checked.
func FuzzThreshold(f *testing.F) {
	for _, text := range []string{"p99<5ms", "errors<0.1%", "denied>0", "rate>=1000", "p99.9<=1h2m3s", "mean<1µs", "p1<x", "errors<%"} {
		f.Add(text)
	}
	r := resultOf(5, 4, 3, time.Millisecond)
	f.Fuzz(func(t *testing.T, text string) {
		th, err := loadgen.ParseThreshold(text)
		if err != nil {
			return
		}
		again, err := loadgen.ParseThreshold(th.String())
		if err != nil || again != th {
			t.Errorf("%q is %v and then %v: %v", text, th, again, err)
		}
		if a, b := th.Check(r), again.Check(r); a != b || a.Got == "" {
			t.Errorf("%v and %v", a, b)
		}
	})
}
