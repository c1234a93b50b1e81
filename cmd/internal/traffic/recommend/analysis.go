package recommend

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/sluiceproject/sluice"
)

// Purpose is what the limit is for.
type Purpose string

// Purposes.
const (
	Deny        Purpose = "deny"        // requests over the limit are denied
	Queue       Purpose = "queue"       // they wait in a queue of a size, with an outflow
	Concurrency Purpose = "concurrency" // requests in flight are limited
)

// Config configures [Traffic.Recommend].
type Config struct {
	For       Purpose
	Untouched int           // share of clients to leave untouched, in millionths
	Block     time.Duration // length of a time block; 0 chooses it from the time span
	Rates     []Rate        // rates of the frontier; nil chooses them from the traffic
	Capacity  Rate          // total rate that is never exceeded; zero if unknown
	// Resolution is that of the times in the log.
	Resolution time.Duration
	Name       string   // of the rule
	Per        []string // references of the key in rule files; empty for one key shared by all requests
	Proxies    []string // trusted proxies, for rules by client IP
	Key        string   // expression of the key, for the report
	HasCost    bool     // requests have costs
	// Mask returns a key for the report without personal data. Nil hides all of it.
	Mask func(key string) string
}

// wholeShare is a share of 100 % in millionths.
const wholeShare = 1_000_000

// Errors about traffic from which nothing can be recommended.
var (
	ErrNoRequests  = errors.New("recommend: there are no requests")
	ErrNoDurations = errors.New("recommend: the log contains no durations: a concurrency limit needs them: log $request_time or similar, or name the field with --columns duration=NAME")
	ErrNoClients   = errors.New("recommend: all keys are crawlers, or have no request in a training block: try another --block or --key")
	ErrNoPoint     = errors.New("recommend: no rate fits the traffic: give one with --rate")
)

// analysis is the state of one recommendation.
type analysis struct {
	Config
	t        *Traffic
	blocks   blocks
	training scan
	result   *Report
	outlier  []bool // by key, at the recommended limit
}

// counted reports whether the key counts: it is not a crawler.
func (a *analysis) counted(key int) bool { return !a.t.crawlers[key] }

// Recommend recommends a limit for the traffic.
func (t *Traffic) Recommend(ctx context.Context, c Config) (*Report, error) {
	if len(t.key) == 0 {
		return nil, ErrNoRequests
	}
	if c.For == Concurrency && len(t.duration) == 0 {
		return nil, ErrNoDurations
	}
	a := &analysis{Config: c, t: t, result: &Report{Config: c}}
	if err := a.split(); err != nil {
		return nil, err
	}
	t.group()
	a.describe()
	if err := a.choose(ctx); err != nil {
		return nil, err
	}
	if err := a.judge(ctx); err != nil {
		return nil, err
	}
	return a.result, nil
}

// blockLengths are the lengths of blocks to choose from. 12 h is missing: even blocks would be the days, odd ones the nights.
var blockLengths = []time.Duration{
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 20 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 20 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 24 * time.Hour,
}

const (
	leastBlocks = 8
	mostBlocks  = 4096
)

// split splits the time into blocks.
func (a *analysis) split() error {
	start, end := a.t.micros[0], a.t.micros[len(a.t.micros)-1]
	length := a.Block
	if length == 0 {
		length = blockLengths[0]
		for _, l := range blockLengths {
			if (end-start)/l.Microseconds() >= leastBlocks {
				length = l
			}
		}
		for (end-start)/length.Microseconds() >= mostBlocks {
			length *= 7
		}
	}
	if length < time.Millisecond || (end-start)/length.Microseconds() >= mostBlocks {
		return fmt.Errorf("blocks of %v are too short for a time span of %v: use at most %d blocks",
			length, time.Duration(end-start)*time.Microsecond, mostBlocks)
	}
	a.blocks = blocks{start: start, length: length.Microseconds()}
	a.training = scan{t: a.t, blocks: a.blocks}
	r := a.result
	r.Start, r.End, r.Block = time.UnixMicro(start).UTC(), time.UnixMicro(end).UTC(), length
	n := a.blocks.of(end) + 1
	r.Training.Blocks, r.Validation.Blocks = (n+1)/2, n/2
	return nil
}

// describe counts the traffic.
func (a *analysis) describe() {
	r, t := a.result, a.t
	r.Requests, r.Keys, r.Sample, r.Dropped, r.Late, r.CheapCost = len(t.key), len(t.names), t.Sample(), t.Dropped, t.Late, t.CheapCost
	for k := range t.names {
		n := int64(len(t.of(k)))
		if t.crawlers[k] {
			r.Crawlers.Keys++
			r.Crawlers.Requests += n
		}
	}
}

// choose finds the frontier and its knee, or the permits of a concurrency limit.
func (a *analysis) choose(ctx context.Context) error {
	if !a.hasClients() {
		return ErrNoClients
	}
	if a.For == Concurrency {
		return a.permits()
	}
	rates := a.Rates
	if len(rates) == 0 {
		rates = a.rates()
	}
	slices.SortFunc(rates, compareRates) // of equal points the knee is the first
	for _, rate := range slices.Compact(rates) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if p, ok := a.point(rate); ok {
			a.result.Frontier = append(a.result.Frontier, p)
		}
	}
	best := knee(a.result.Frontier, a.Capacity.PerSecondOrZero())
	if best == nil && len(a.result.Frontier) > 0 {
		return fmt.Errorf("no limit fits a capacity of %v: the clients' bursts need at least %.0f/s: raise the capacity, or lower --untouched",
			a.Capacity, math.Ceil(knee(a.result.Frontier, 0).peak()))
	}
	if best == nil {
		return ErrNoPoint
	}
	_, wide, _ := a.training.measure(bucketMeters(best.Rate), a.counted)
	a.recommend(best.Rate.limit(best.Burst), wide, best.Fence)
	a.result.Knee = best
	a.fuzz(best)
	return nil
}

// hasClients reports whether any key counts in the training blocks.
func (a *analysis) hasClients() bool {
	for i, k := range a.t.key {
		if a.counted(int(k)) && a.blocks.trains(a.t.micros[i]) {
			return true
		}
	}
	return false
}

// recommend records the limit, and the outliers among what keys need.
func (a *analysis) recommend(limit sluice.Limit, needs []int64, fence int64) {
	a.result.Limit = limit
	a.outlier = make([]bool, len(needs))
	for k, n := range needs {
		a.outlier[k] = fence > 0 && n > fence && a.counted(k)
	}
	a.result.Fence = fence
}

// rates returns the rates of the frontier: from one request in the time span to the busiest second of any key.
func (a *analysis) rates() []Rate {
	span := max(1, a.result.End.Sub(a.result.Start).Seconds())
	least, busiest := int64(math.MaxInt64), int64(1)
	for k := range a.t.names {
		second, sum := int64(math.MinInt64), int64(0)
		for _, i := range a.t.of(k) {
			if s := a.t.micros[i] / 1e6; s != second {
				second, sum = s, 0
			}
			sum += a.t.costOf(i)
			busiest, least = max(busiest, sum), min(least, a.t.costOf(i))
		}
	}
	all := grid(max(float64(least)/span, 1./86400), float64(busiest))
	if len(all) == 0 {
		all = grid(1, 1)
	}
	return all
}

// fuzz records by how much the resolution of the log changes the burst: times are uncertain by the resolution, and in that
// time the queue drains rate × resolution.
func (a *analysis) fuzz(p *Point) {
	b := newBacklog(p.Rate)
	slack := mulSat(a.Resolution.Microseconds(), b.count)
	up := func(level int64) int64 { return (&backlog{length: b.length, most: level}).burst() }
	a.result.BurstLow, a.result.BurstHigh = max(1, up(max(0, p.most-slack))), up(p.most+slack)
}

// permits recommends a concurrency limit.
func (a *analysis) permits() error {
	_, needs, fence := a.training.measure(a.meters(), a.counted)
	var counted []int64
	for k, n := range needs {
		if n > 0 && a.counted(k) && (fence == 0 || n <= fence) {
			counted = append(counted, n)
		}
	}
	if len(counted) == 0 {
		return ErrNoRequests
	}
	slices.Sort(counted)
	most := counted[len(counted)-1-a.mayDeny(len(counted))]
	const mostPermits = 10_000
	a.recommend(sluice.Concurrent(min(most, mostPermits)), needs, fence)
	return nil
}

// PerSecondOrZero returns the rate per second, or 0 for the zero Rate.
func (r Rate) PerSecondOrZero() float64 {
	if r.Window == 0 {
		return 0
	}
	return r.PerSecond()
}
