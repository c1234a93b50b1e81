package recommend

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// judge replays the recommendation and writes the rule.
func (a *analysis) judge(ctx context.Context) error {
	if err := a.algorithm(ctx); err != nil {
		return err
	}
	r := a.result
	outlier := slices.Clone(a.outlier)
	for n, part := range []*Part{training: &r.Training, validation: &r.Validation} {
		if n == validation {
			a.validationOutliers(outlier)
		}
		done, err := a.t.replay(ctx, r.Limit, func(i uint32) (int64, bool) { return a.blocks.when(a.t.micros[i], n) })
		if err != nil {
			return err
		}
		a.classify(part, done, outlier)
	}
	whole, err := a.t.replay(ctx, r.Limit, a.t.recorded)
	if err != nil {
		return err
	}
	a.outlier = outlier
	r.Whole.Blocks = r.Training.Blocks + r.Validation.Blocks
	a.classify(&r.Whole, whole, outlier)
	r.Crawlers, r.MaxDelay = r.Whole.Crawlers, whole.maxDelay
	if a.Mask == nil {
		a.Mask = func(string) string { return "*" }
	}
	a.listOutliers(whole)
	a.curves()
	a.useCapacity(whole)
	a.confidence()
	a.notes()
	return a.writeRule(ctx)
}

// validationOutliers adds the keys that are outliers in the validation blocks.
func (a *analysis) validationOutliers(outlier []bool) {
	if a.result.Fence == 0 {
		return
	}
	s := scan{t: a.t, blocks: a.blocks, part: validation}
	_, wide, _ := s.measure(a.meters(), a.counted)
	for k, n := range wide {
		outlier[k] = outlier[k] || n > a.result.Fence && a.counted(k)
	}
}

// meters returns meters for the recommended limit.
func (a *analysis) meters() meters {
	if a.For == Concurrency {
		return meters{&flight{}, &flight{}, &flight{}}
	}
	return bucketMeters(a.result.Knee.Rate)
}

func (a *analysis) classify(part *Part, done *replayed, outlier []bool) {
	for k := range a.t.names {
		c := &part.Clients
		switch {
		case a.t.crawlers[k]:
			c = &part.Crawlers
		case outlier[k]:
			c = &part.Outliers
		}
		c.add(done.requests[k], done.denied[k])
	}
}

func (c *Class) add(requests, denied int64) {
	if requests == 0 {
		return
	}
	c.Keys++
	c.Requests += requests
	if c.Denied += denied; denied > 0 {
		c.KeysDenied++
	}
}

func (a *analysis) listOutliers(whole *replayed) {
	m := a.meters().whole
	var all []Outlier
	for k, is := range a.outlier {
		if !is {
			continue
		}
		m.reset()
		for _, i := range a.t.of(k) {
			m.request(a.t.micros[i], a.t.costOf(i), a.t.durationOf(i))
		}
		all = append(all, Outlier{Key: a.t.names[k], Requests: whole.requests[k], Denied: whole.denied[k], Need: m.need()})
	}
	slices.SortStableFunc(all, func(x, y Outlier) int { return int(min(1, max(-1, y.Need-x.Need))) })
	all = all[:min(len(all), maxOutliers)]
	for i := range all {
		all[i].Key = a.Mask(all[i].Key)
	}
	a.result.Outliers = all
}

// useCapacity compares what all keys together were allowed with the capacity.
func (a *analysis) useCapacity(whole *replayed) {
	capacity := a.Config.Capacity.PerSecondOrZero()
	if capacity == 0 {
		return
	}
	u := &CapacityUse{PerSecond: capacity, Busiest: whole.busiest, Fits: float64(whole.busiest) <= capacity}
	if a.result.Knee != nil {
		u.OneKey = a.result.Knee.peak()
	}
	a.result.Capacity = u
}

// Numbers of the confidence.
const (
	sureSpan     = 24 * time.Hour
	sureBlocks   = 8
	sureRequests = 1000
	sureOutliers = 5  // percent of keys
	sureFuzz     = 10 // percent of the burst, in each direction
	mediumChecks = 5
)

// confidence checks the evidence.
func (a *analysis) confidence() {
	r := a.result
	c := &r.Confidence
	check := func(name string, ok bool, format string, args ...any) {
		c.Checks = append(c.Checks, Check{name, ok, fmt.Sprintf(format, args...)})
	}
	v := r.Validation.Clients
	expected := a.mayDeny(v.Keys)
	validated := v.Keys > 0 && v.KeysDenied <= expected+int(3*math.Sqrt(float64(expected))) // three standard deviations
	check("validation", validated, "%d of %d clients denied in blocks that did not train", v.KeysDenied, v.Keys)
	n := r.Training.Clients.Keys
	if len(a.Per) == 0 {
		check("sample", r.Requests >= sureRequests, "%d requests; at least %d are needed", r.Requests, sureRequests)
	} else {
		// Of n clients and a further one, each is equally likely to need most: the largest of n covers n/(n+1).
		check("sample", n*(wholeShare-a.Untouched) >= a.Untouched,
			"%s can support a share of %v %%; %s was asked for", term.Count(n, "client"), math.Floor(1e6*float64(n)/float64(n+1))/1e4, Percent(a.Untouched))
	}
	check("blocks", r.Training.Blocks >= sureBlocks, "%s; at least %d are needed", term.Count(r.Training.Blocks, "training block"), sureBlocks)
	span := r.End.Sub(r.Start).Round(time.Second)
	check("span", span >= sureSpan, "the log covers %v; a daily rhythm needs %v", span, sureSpan)
	all := r.Training.Clients.Keys + r.Training.Outliers.Keys
	check("outliers", 100*r.Training.Outliers.Keys <= sureOutliers*all, "%d of %d keys left out as outliers; at most %d %%",
		r.Training.Outliers.Keys, all, sureOutliers)
	burst := r.Limit.Max()
	off := max(r.BurstHigh-burst, burst-r.BurstLow)
	check("times", r.Knee == nil || 100*off <= sureFuzz*burst, "times of %v make the burst uncertain by %d; at most %d %%", a.Resolution, max(0, off), sureFuzz)
	held := 0
	for _, one := range c.Checks {
		if one.OK {
			held++
		}
	}
	switch {
	case held == len(c.Checks):
		c.Level = "high"
	case validated && held >= mediumChecks:
		c.Level = "medium"
	default:
		c.Level = "low"
	}
}

// notes warns about what the numbers do not say.
func (a *analysis) notes() {
	r := a.result
	note := func(format string, args ...any) { r.Notes = append(r.Notes, fmt.Sprintf(format, args...)) }
	if r.Knee != nil && a.Resolution >= time.Millisecond {
		note("Times in the log have a resolution of %v. With exact times the burst at %v would be between %d and %d.", a.Resolution, r.Knee.Rate, r.BurstLow, r.BurstHigh)
	}
	if r.Sample > 1 {
		note("There are too many keys for the memory: the numbers are those of 1 in %d keys, with all of their requests.", r.Sample)
	}
	if r.Dropped > 0 {
		note("%d requests after the first %d were not used, because of the memory bound.", r.Dropped, r.Requests)
	}
	if r.Late > 0 {
		note("%d requests were out of order and counted late.", r.Late)
	}
	if r.CheapCost > 0 {
		note("%d requests have a cost below 1: they count as 1, the least that a rule can charge.", r.CheapCost)
	}
	if all := r.Training.Clients.Keys + r.Training.Outliers.Keys; 100*r.Training.Outliers.Keys > sureOutliers*all {
		note("%d of %d keys are far above the others: if they are clients and no flood, give them their own limit with tiers.", r.Training.Outliers.Keys, all)
	}
	if r.Fence == 0 && len(a.Per) > 0 {
		note("There are too few keys to find outliers: a flood in the log raises the limit.")
	}
	if c := r.Capacity; c != nil && !c.Fits {
		note("All keys together were allowed %d in one second, above the capacity: the rule with the total limit is needed.", c.Busiest)
	}
	if a.HasCost {
		note("The rule reads the cost from attr:cost, which the application sets. Rules can also read it from the request or the response.")
	}
}

// Percent formats millionths.
func Percent(millionths int) string { return fmt.Sprintf("%.4g %%", float64(millionths)/1e4) }

// algorithm replays the candidates over the clients of the training blocks and chooses one.
func (a *analysis) algorithm(ctx context.Context) error {
	r := a.result
	switch a.For {
	case Concurrency:
		r.Reason = fmt.Sprintf("At most %d requests of a client were in flight at once.", r.Limit.Count)
		return nil
	case Queue:
		r.Limit.Algorithm = sluice.LeakyQueue
		r.Reason = fmt.Sprintf("A queue of %d places with an outflow of %v drops no request of these clients; the longest wait is %v.",
			r.Limit.Burst, r.Knee.Rate, longestWait(r.Limit))
		return nil
	}
	for _, c := range candidates(r.Limit) {
		done, err := a.t.replay(ctx, c.limit, func(i uint32) (int64, bool) {
			k := int(a.t.key[i])
			micros, ok := a.blocks.when(a.t.micros[i], training)
			return micros, ok && a.counted(k) && !a.outlier[k]
		})
		if err != nil {
			return err
		}
		for k := range a.t.names {
			c.Clients.add(done.requests[k], done.denied[k])
		}
		r.Algorithms = append(r.Algorithms, c)
	}
	chosen, reason := pick(r.Algorithms)
	r.Limit, r.Reason = chosen.limit, reason
	return nil
}

// longestWait returns the wait of the last place in a queue, rounded up to milliseconds.
func longestWait(l sluice.Limit) time.Duration {
	micros := mulSat(l.Burst-1, l.Window.Microseconds())
	return time.Duration((micros/l.Count+999)/1000) * time.Millisecond
}

// bytesPerKey is the memory of a state; see docs/algorithms.md.
const bytesPerKey, bytesPerEntry = 29, 8

// candidates returns the algorithms at the rate and the size of a token bucket. Their window is the time in which the bucket
// refills, so that the size per window is the same rate.
func candidates(bucket sluice.Limit) []Candidate {
	b := bucket.Burst
	all := []Candidate{{Most: 2 * b, Bytes: bytesPerKey, limit: bucket}}
	micros := mulSat(b, bucket.Window.Microseconds()) / bucket.Count
	window := time.Duration((micros+999)/1000) * time.Millisecond
	for _, alg := range []sluice.Algorithm{sluice.SlidingWindowLog, sluice.SlidingWindowCounter, sluice.FixedWindow} {
		c := Candidate{Most: b, Bytes: bytesPerKey, limit: sluice.Per(b, window).WithAlgorithm(alg)}
		switch alg {
		case sluice.SlidingWindowLog:
			c.Bytes += bytesPerEntry * b
		case sluice.FixedWindow, sluice.SlidingWindowCounter:
			c.Most = 2 * b
		}
		if _, err := c.limit.Build(); err == nil {
			all = append(all, c)
		}
	}
	if bucket.Window == 24*time.Hour {
		day := sluice.PerCalendar(bucket.Count, sluice.CalendarDay, time.UTC)
		all = append(all, Candidate{Most: 2 * bucket.Count, Bytes: bytesPerKey, limit: day})
	}
	for i := range all {
		all[i].Algorithm, all[i].Limit = all[i].limit.Algorithm.String(), all[i].limit.String()
	}
	return all
}

// smoothBurst is the largest burst of clients that send regularly.
const smoothBurst = 2

// mostLogBytes is the memory per key up to which a log is preferred to a counter.
const mostLogBytes = 1024

// denies returns how many more clients, or if as many, requests it denies than another.
func (c *Candidate) denies(other *Candidate) int64 {
	if more := c.Clients.KeysDenied - other.Clients.KeysDenied; more != 0 {
		return int64(more)
	}
	return c.Clients.Denied - other.Clients.Denied
}

// pick chooses among the candidates, of which the first is the token bucket.
func pick(all []Candidate) (*Candidate, string) {
	bucket := &all[0]
	b := bucket.limit.Burst
	if b <= smoothBurst {
		bucket.limit.Algorithm = sluice.LeakyBucket
		bucket.Algorithm, bucket.Limit = bucket.limit.Algorithm.String(), bucket.limit.String()
		return bucket, fmt.Sprintf("These clients send regularly: a burst of %d is enough. A leaky bucket makes the same decisions as a token bucket of that size.", b)
	}
	worst := bucket
	for i := range all[1:] {
		c := &all[i+1]
		if c.limit.Align == sluice.AlignCalendar && c.denies(bucket) <= 0 {
			return c, fmt.Sprintf("A quota of %d per calendar day is easy to explain and denies no more clients than a token bucket (%d of %d).",
				c.limit.Count, c.Clients.KeysDenied, c.Clients.Keys)
		}
	}
	for i := range all[1:] {
		c := &all[i+1]
		if c.limit.Algorithm == sluice.FixedWindow {
			continue
		}
		if c.denies(bucket) <= 0 && c.Bytes <= mostLogBytes {
			return c, fmt.Sprintf("A sliding window denies no more clients than a token bucket of the same rate and size (%d of %d), and "+
				"one key gets %d in %v instead of %d. A fixed window would double at its boundary.",
				c.Clients.KeysDenied, c.Clients.Keys, c.Most, c.limit.Window, bucket.Most)
		}
		if worst == bucket || c.Clients.KeysDenied < worst.Clients.KeysDenied {
			worst = c
		}
	}
	if worst == bucket {
		return bucket, "A token bucket allows bursts at a long-run rate."
	}
	return bucket, fmt.Sprintf("Clients send bursts after pauses: at the same rate and size a token bucket denies %d of %d clients, "+
		"a sliding window of %v denies %d (%d requests).",
		bucket.Clients.KeysDenied, bucket.Clients.Keys, worst.limit.Window, worst.Clients.KeysDenied, worst.Clients.Denied)
}
