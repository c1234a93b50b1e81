package loadgen

import "time"

// A Result is the result of a run.
type Result struct {
	Begun   time.Time
	Elapsed time.Duration // until the last response; in an open loop at least the length of the schedule
	Sum     Point         // sum of all points
	Points  []Point

	Missed int64 // failed requests that were due and not sent
	Cut    int64 // requests without a response because the run was interrupted
	// Late is the number of requests of an open loop that were sent more than 10 ms after they were due, and MaxLate the
	// maximum delay. Their latency is measured from the time they were due.
	Late    int64
	MaxLate time.Duration

	Codes       map[string]int64 // number of responses by code
	Reasons     map[string]int64 // number of requests without a response by error
	Interrupted bool
}

// Requests returns the total number of requests.
func (r *Result) Requests() int64 { return r.Sum.Allowed + r.Sum.Denied + r.Sum.Failed + r.Cut }

// PerSecond returns the number of allowed and denied requests per second.
func (r *Result) PerSecond() float64 {
	if r.Elapsed <= 0 {
		return 0
	}
	return float64(r.Sum.Allowed+r.Sum.Denied) / r.Elapsed.Seconds()
}

// BehindShare is the share of requests sent late above which a run is behind its schedule.
const BehindShare = 0.01

// Behind reports whether an open loop was behind its schedule.
func (r *Result) Behind() bool {
	return r.Missed > 0 || float64(r.Late) > BehindShare*float64(r.Requests())
}
