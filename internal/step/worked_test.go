package step_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/internal/step"
)

// The worked examples that explain each algorithm: requests at given times, and their outcomes.

// line is one line of a transcript: n requests of one unit each.
type line struct {
	at   string
	n    int
	want string
}

// clock parses a time of day, on a day of 2023.
func clock(t *testing.T, s string) int64 {
	at, err := time.Parse("15:04:05.999999", s)
	if err != nil {
		t.Fatal(err)
	}
	midnight := time.Date(2023, 11, 14, 0, 0, 0, 0, time.UTC)
	return midnight.UnixMicro() + at.Sub(time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)).Microseconds()
}

// outcome describes the decision about a request in a few words.
func outcome(a step.Answer) string {
	micros := func(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
	switch {
	case a.Never:
		return "never"
	case !a.Allowed:
		return fmt.Sprintf("denied for %v", micros(a.RetryAfter))
	case a.Delay > 0:
		return fmt.Sprintf("%d left after %v", a.Remaining, micros(a.Delay))
	}
	return fmt.Sprintf("%d left", a.Remaining)
}

func TestWorkedExamples(t *testing.T) {
	for _, c := range []struct {
		name  string
		limit step.Params
		lines []line
	}{
		{
			"B1 token bucket of 4, refilled by 4 at each full minute",
			step.Params{Kind: step.Interval, Count: 4, Length: minute, Burst: 4},
			[]line{
				{"1:00:00", 3, "1 left"},
				{"1:00:05", 1, "0 left"},
				{"1:00:20", 1, "denied for 40s"},
				{"1:00:59.999999", 1, "denied for 1µs"},
				{"1:01:00", 0, "4 left"},
				{"1:09:00", 0, "4 left"}, // overflow is discarded
				{"1:09:00", 4, "0 left"}, // idle time refills the bucket
				{"1:09:00", 1, "denied for 1m0s"},
			},
		},
		{
			"B1 the same, refilled continuously: one each 15 seconds",
			step.Params{Kind: step.Bucket, Count: 4, Length: minute, Burst: 4},
			[]line{
				{"1:00:00", 3, "1 left"},
				{"1:00:05", 1, "0 left"},
				{"1:00:05", 1, "denied for 10s"},
				{"1:00:20", 1, "0 left"},
				{"1:00:29.999999", 1, "denied for 1µs"},
				{"1:00:30", 1, "0 left"},
				{"1:01:30", 0, "4 left"},
				{"1:09:00", 0, "4 left"},
			},
		},
		{
			"B2 leaky bucket as a meter: 3 places, 1 leaks each second",
			step.Params{Kind: step.Bucket, Count: 1, Length: second, Burst: 3},
			[]line{
				{"1:00:00", 3, "0 left"},
				{"1:00:00", 2, "denied for 1s"},
				{"1:00:01", 1, "0 left"},
				{"1:00:01", 1, "denied for 1s"},
			},
		},
		{
			"B2 leaky bucket as a queue: 3 places, 1 leaves each second, 5 come at once",
			step.Params{Kind: step.Bucket, Queue: true, Count: 1, Length: second, Burst: 3},
			[]line{
				{"1:00:00", 1, "2 left"},
				{"1:00:00", 1, "1 left after 1s"},
				{"1:00:00", 1, "0 left after 2s"},
				{"1:00:00", 2, "denied for 1s"},
				{"1:00:01", 1, "0 left after 2s"},
				{"1:00:10", 1, "2 left"},
			},
		},
		{
			"B3 fixed window of 5 a minute: 10 within one minute",
			step.Params{Kind: step.Window, Count: 5, Length: minute},
			[]line{
				{"2:00:30", 3, "2 left"},
				{"2:00:59.999999", 2, "0 left"},
				{"2:00:59.999999", 1, "denied for 1µs"},
				{"2:01:00", 4, "1 left"},
				{"2:01:29", 1, "0 left"},
				{"2:01:29", 1, "denied for 31s"},
			},
		},
		{
			"B4 sliding log of 2 a minute",
			step.Params{Kind: step.Log, Count: 2, Length: minute},
			[]line{
				{"1:00:01", 1, "1 left"},
				{"1:00:30", 1, "0 left"},
				{"1:00:50", 1, "denied for 11s"},
				{"1:01:40", 1, "1 left"}, // the first two have left
				{"1:01:40", 1, "0 left"},
				{"1:02:39.999999", 1, "denied for 1µs"},
				{"1:02:40", 1, "1 left"},
			},
		},
		{
			"B5 sliding counter of 7 a minute, 5 in the last minute and 3 in this: 3 + 5 × 70 % = 6.5, rounded down",
			step.Params{Kind: step.Counter, Count: 7, Length: minute},
			[]line{
				{"1:00:10", 5, "2 left"},
				{"1:01:12", 3, "0 left"}, // 80 % of 5 are 4
				{"1:01:18", 0, "1 left"},
				{"1:01:18", 1, "0 left"},
				{"1:01:18", 1, "denied for 6.00055s"}, // 60 % are left after 6 s; the share is rounded up to 1/65,536
			},
		},
		{
			"B5 the same, rounded to the nearest: 7",
			step.Params{Kind: step.Counter, Count: 7, Length: minute, Nearest: true},
			[]line{
				{"1:00:10", 5, "2 left"},
				{"1:01:12", 3, "0 left"},
				{"1:01:18", 0, "0 left"},
				{"1:01:18", 1, "denied for 184µs"},
			},
		},
		{
			"B5 sub-windows of 20 s: only the oldest is weighted",
			step.Params{Kind: step.Slices, Count: 7, Length: minute, Slices: 3},
			[]line{
				{"1:00:10", 4, "3 left"},
				{"1:00:30", 1, "2 left"},
				{"1:01:00", 0, "2 left"},
				{"1:01:10", 0, "4 left"}, // half of the first sub-window's 4 are 2
				{"1:01:10", 4, "0 left"},
				{"1:01:19.999999", 1, "1 left"}, // nearly nothing is left of the first sub-window
			},
		},
		{
			"B6 soft limit of 10 a minute, over by 2 for 10 s: the 12th in time",
			step.Params{Kind: step.Window, Count: 10, Length: minute, SoftExcess: 2, SoftPeriod: 10 * second},
			[]line{
				{"1:00:05", 10, "2 left"},
				{"1:00:20", 1, "1 left"}, // the 11th starts the grace period of 10 s
				{"1:00:30", 0, "1 left"},
				{"1:00:30", 1, "0 left"}, // the 12th within the grace period
				{"1:00:30", 1, "denied for 30s"},
				{"1:01:00", 1, "11 left"},
			},
		},
		{
			"B6 the same: the 12th too late",
			step.Params{Kind: step.Window, Count: 10, Length: minute, SoftExcess: 2, SoftPeriod: 10 * second},
			[]line{
				{"1:00:05", 10, "2 left"},
				{"1:00:20", 1, "1 left"},
				{"1:00:30.000001", 0, "0 left"},
				{"1:00:30.000001", 1, "denied for 29.999999s"},
				{"1:00:59", 1, "denied for 1s"},
				{"1:01:00", 1, "11 left"},
			},
		},
		{
			"B6 hard: the threshold is never exceeded",
			step.Params{Kind: step.Window, Count: 10, Length: minute},
			[]line{
				{"1:00:05", 10, "0 left"},
				{"1:00:20", 1, "denied for 40s"},
				{"1:01:00", 1, "9 left"},
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newKey(c.limit)
			for _, l := range c.lines {
				now := clock(t, l.at)
				if l.n == 0 { // a peek
					if got := fmt.Sprintf("%d left", k.peek(now)); got != l.want {
						t.Errorf("at %s: %s, want %s", l.at, got, l.want)
					}
				}
				for i := range l.n {
					got := outcome(k.take(now, step.Request{Cost: 1}))
					if i == l.n-1 && got != l.want {
						t.Errorf("at %s: %s, want %s", l.at, got, l.want)
					}
				}
			}
		})
	}
}

// The option to record denied requests, too, as in the classic description of the log.
func TestWorkedExampleChargingLog(t *testing.T) {
	k := newKey(step.Params{Kind: step.Log, Count: 2, Length: minute})
	for _, l := range []line{
		{"1:00:01", 1, "1 left"},
		{"1:00:30", 1, "0 left"},
		{"1:00:50", 1, "denied for 40s"},
		{"1:01:40", 1, "0 left"}, // the denied one of 1:00:50 still counts
		{"1:01:49.999999", 1, "denied for 50.000001s"},
	} {
		if got := outcome(k.take(clock(t, l.at), step.Request{Cost: 1, Charge: true})); got != l.want {
			t.Errorf("at %s: %s, want %s", l.at, got, l.want)
		}
	}
}
