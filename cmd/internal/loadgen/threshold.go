package loadgen

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// A Threshold is a condition on a result, such as p99<5ms, errors<0.1%, denied>0 or rate>1000.
type Threshold struct {
	text  string
	what  string  // min, mean, max, p99.9; rate; requests, allowed, denied, errors
	p     float64 // percentile of p99 and similar
	op    string
	value float64 // nanoseconds for latencies
	share bool    // value is a percentage of all requests
}

// String returns the threshold as it was written, without spaces.
func (t Threshold) String() string { return t.text }

// A Verdict is the result of checking a threshold.
type Verdict struct {
	Threshold Threshold
	Kept      bool
	Got       string // measured value, such as 3.1ms or 0.02%
}

var thresholdForm = regexp.MustCompile(`^\s*([a-z]+|p\d{1,2}(?:\.\d{1,6})?|p100)\s*(<=|>=|<|>)\s*(\S+)\s*$`)

const thresholdHelp = "write a condition such as p99<5ms, mean<=1ms, errors<0.1%, denied>0 or rate>1000"

// ParseThreshold parses a threshold.
func ParseThreshold(s string) (Threshold, error) {
	fault := func(what string) (Threshold, error) {
		return Threshold{}, fmt.Errorf("%q %s: %s", s, what, thresholdHelp)
	}
	m := thresholdForm.FindStringSubmatch(s)
	if m == nil {
		return fault("is not a threshold")
	}
	t := Threshold{text: m[1] + m[2] + m[3], what: m[1], op: m[2]}
	switch t.what {
	case "requests", "allowed", "denied", "errors":
		number, percent := strings.CutSuffix(m[3], "%")
		t.share = percent
		n, err := strconv.ParseFloat(number, 64)
		if err != nil || !(n >= 0) || math.IsInf(n, 0) {
			return fault(fmt.Sprintf("needs a number or a percentage: %q is neither", m[3]))
		}
		if percent && t.what == "requests" {
			return fault("needs a number of requests, not a percentage")
		}
		t.value = n
	case "rate":
		n, err := strconv.ParseFloat(m[3], 64)
		if err != nil || !(n >= 0) || math.IsInf(n, 0) {
			return fault(fmt.Sprintf("needs a number of responses per second: %q is not a number", m[3]))
		}
		t.value = n
	default:
		if !t.latency() {
			return fault("has an unknown metric")
		}
		d, err := time.ParseDuration(m[3])
		if err != nil || d < 0 {
			return fault(fmt.Sprintf("needs a duration: %q is not a duration", m[3]))
		}
		t.value = float64(d)
	}
	return t, nil
}

// latency reports whether the threshold is about latency, and sets the percentile.
func (t *Threshold) latency() bool {
	switch t.what {
	case "min", "mean", "max":
		return true
	}
	digits, ok := strings.CutPrefix(t.what, "p")
	p, err := strconv.ParseFloat(digits, 64)
	t.p = p
	return ok && err == nil
}

// Check checks a result. A threshold on latency fails if no latency was measured.
func (t Threshold) Check(r *Result) Verdict {
	got, text := t.measure(r)
	kept := false
	switch t.op {
	case "<":
		kept = got < t.value
	case "<=":
		kept = got <= t.value
	case ">":
		kept = got > t.value
	case ">=":
		kept = got >= t.value
	}
	return Verdict{t, kept, text}
}

func (t Threshold) measure(r *Result) (float64, string) {
	latency := func(d time.Duration) (float64, string) {
		if r.Sum.Latency.Count() == 0 {
			return math.NaN(), "no responses"
		}
		return float64(d), Round(d).String()
	}
	count := func(n int64) (float64, string) {
		if !t.share {
			return float64(n), strconv.FormatInt(n, 10)
		}
		all := r.Requests()
		if all == 0 {
			return math.NaN(), "no requests"
		}
		share := 100 * float64(n) / float64(all)
		return share, strconv.FormatFloat(share, 'g', 4, 64) + "%"
	}
	h := &r.Sum.Latency
	switch t.what {
	case "requests":
		return count(r.Requests())
	case "allowed":
		return count(r.Sum.Allowed)
	case "denied":
		return count(r.Sum.Denied)
	case "errors":
		return count(r.Sum.Failed)
	case "rate":
		return r.PerSecond(), strconv.FormatFloat(r.PerSecond(), 'f', 1, 64)
	case "min":
		return latency(h.Min())
	case "mean":
		return latency(h.Mean())
	case "max":
		return latency(h.Max())
	}
	return latency(h.Percentile(t.p))
}

// Round rounds a duration to about 3 significant digits.
func Round(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit)
}
