package loadgen

import "time"

// A Result is what a run found.
type Result struct {
	Begun   time.Time
	Elapsed time.Duration // until the last answer; in an open loop, at least as long as the schedule
	Sum     Point         // all points together
	Points  []Point

	Missed int64 // of those that failed: due, and never sent
	Cut    int64 // sent, and nobody waited for the answer, because the run was interrupted
	// Late is how many requests of an open loop went out well after they were due, and MaxLate how much at most. They
	// count from when they were due.
	Late    int64
	MaxLate time.Duration

	Codes       map[string]int64 // what the server said, and how often
	Reasons     map[string]int64 // why requests had no answer, and how often
	Interrupted bool
}

// Requests is how many there were.
func (r *Result) Requests() int64 { return r.Sum.Allowed + r.Sum.Denied + r.Sum.Failed + r.Cut }

// PerSecond is how many were answered, allowed or denied, in a second.
func (r *Result) PerSecond() float64 {
	if r.Elapsed <= 0 {
		return 0
	}
	return float64(r.Sum.Allowed+r.Sum.Denied) / r.Elapsed.Seconds()
}

// BehindShare is the share of late requests from which a run is said to have missed its schedule.
const BehindShare = 0.01

// Behind tells that an open loop could not keep its schedule.
func (r *Result) Behind() bool {
	return r.Missed > 0 || float64(r.Late) > BehindShare*float64(r.Requests())
}
