package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/loadgen"
)

// Options are the options of sluice bench.
type Options struct {
	Rate        float64
	Callers     int
	Pipeline    int
	Connections int
	Duration    time.Duration
	Requests    int64
	Warmup      time.Duration
	Timeout     time.Duration

	Keys         int64
	Distribution string
	Seed         uint64

	Domain      string
	Descriptors []string
	Cost        int64

	Method  string
	Headers []string
	Body    string

	Key                  string
	Burst, Count, Period int64
	PasswordFile         string

	CA          string
	AllowRemote bool

	Thresholds []string // conditions on the result
	HTML       string   // file for the HTML page
	Version    string   // of Sluice, for the page

	DurationGiven bool // if false and Requests is set, the duration is not limited
}

// Bounds of a load, so that a typing error does not overload a system.
const (
	maxConcurrency = 10_000
	maxPipeline    = 1_000
	maxConns       = 1_000
	maxRate        = 1_000_000
	maxDuration    = 24 * time.Hour
	maxRequests    = 1_000_000_000
)

// check parses the thresholds and returns an error for invalid options.
func (o *Options) check() (all []loadgen.Threshold, err error) {
	for _, text := range o.Thresholds {
		t, err := loadgen.ParseThreshold(text)
		if err != nil {
			return nil, fmt.Errorf("--threshold %w", err)
		}
		all = append(all, t)
	}
	if err := o.checkNumbers(); err != nil {
		return nil, err
	}
	if o.HTML != "" { // before the run instead of after it
		if info, err := os.Stat(filepath.Dir(o.HTML)); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("--html %s: there is no directory %s", o.HTML, filepath.Dir(o.HTML))
		}
	}
	return all, nil
}

// checkNumbers returns an error for numbers out of range.
func (o *Options) checkNumbers() error {
	for _, n := range []struct {
		name     string
		value    int64
		from, to int64
	}{
		{"concurrency", int64(o.Callers), 1, maxConcurrency},
		{"pipeline", int64(o.Pipeline), 1, maxPipeline},
		{"connections", int64(o.Connections), 1, maxConns},
		{"keys", o.Keys, 0, loadgen.MaxKeys},
		{"requests", o.Requests, 0, maxRequests},
		{"cost", o.Cost, 1, 1 << 31},
	} {
		if n.value < n.from || n.value > n.to {
			return fmt.Errorf("--%s %d: write a number from %d to %d", n.name, n.value, n.from, n.to)
		}
	}
	switch {
	case !(o.Rate >= 0 && o.Rate <= maxRate):
		return fmt.Errorf("--rate %v: write requests per second, at most %d", o.Rate, maxRate)
	case o.Duration <= 0 || o.Duration > maxDuration:
		return fmt.Errorf("--duration %v: write a duration such as 10s, at most %v", o.Duration, maxDuration)
	case o.Warmup < 0 || o.Warmup > maxDuration:
		return fmt.Errorf("--warmup %v: write a duration such as 2s", o.Warmup)
	case o.Timeout <= 0 || o.Timeout > time.Hour:
		return fmt.Errorf("--timeout %v: write a duration such as 5s", o.Timeout)
	case o.Distribution != "uniform" && o.Distribution != "zipf":
		return fmt.Errorf("--distribution %s: write uniform or zipf", o.Distribution)
	}
	if o.Requests > 0 && !o.DurationGiven {
		o.Duration = maxDuration // until all requests are sent
	}
	return nil
}
