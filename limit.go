package sluice

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/sluiceproject/sluice/internal/step"
)

// Limit is a rate limit or a concurrency limit. Start from [PerMinute], a similar function or [ParseLimit] and refine
// the limit with its With methods, or set the fields. [NewRule], [New] and [Limit.Build] validate it. The zero Limit is
// invalid.
type Limit struct {
	Count     int64         // maximum per Window; for a bucket, the amount refilled or drained per Window
	Window    time.Duration // 1 ms to 366 days, in whole microseconds; the permit TTL of a Concurrency limit, up to 24 h
	Algorithm Algorithm     // default TokenBucket
	// Burst is the maximum that can be used at once: the size of a bucket, the places of a queue. Default Count.
	// Buckets only.
	Burst int64
	// Initial is the level of a key's bucket at its first request: 1 to Burst, or [StartEmpty] for 0. Default Burst.
	// TokenBucket with RefillContinuous only. The bucket fills from the first request on, whether that is allowed or
	// denied. A key that is idle for 24 h after its bucket became full starts with Initial again.
	Initial int64
	Refill  Refill // TokenBucket only
	Align   Align  // FixedWindow, and TokenBucket with RefillInterval

	Calendar CalendarUnit   // with AlignCalendar, instead of Window
	Zone     *time.Location // with AlignCalendar; default UTC

	Rounding   Rounding // SlidingWindowCounter only
	SubWindows int      // SlidingWindowCounter only: 2 to 60 sub-windows instead of one weighted window; must divide Window

	// SoftExcess and SoftPeriod make a limit soft: usage may exceed Count by SoftExcess until SoftPeriod after it first
	// exceeded Count. FixedWindow only; buckets have Burst for the same purpose.
	SoftExcess int64
	SoftPeriod time.Duration

	ttlOfOther bool         // WithPermitTTL was called for an algorithm other than Concurrency
	whole      step.Numbers // of the limit that this one is a part of, if any
	params     *step.Params // set by Build
}

// Per returns a limit of count per window as a token bucket.
func Per(count int64, window time.Duration) Limit { return Limit{Count: count, Window: window} }

// PerSecond returns a limit of n per second as a token bucket.
func PerSecond(n int64) Limit { return Per(n, time.Second) }

// PerMinute returns a limit of n per minute as a token bucket.
func PerMinute(n int64) Limit { return Per(n, time.Minute) }

// PerHour returns a limit of n per hour as a token bucket.
func PerHour(n int64) Limit { return Per(n, time.Hour) }

// PerDay returns a limit of n per 24 hours as a token bucket. For days that begin at midnight see [PerCalendar].
func PerDay(n int64) Limit { return Per(n, 24*time.Hour) }

// PerWeek returns a limit of n per seven days as a token bucket.
func PerWeek(n int64) Limit { return Per(n, 7*24*time.Hour) }

// Every returns a limit of one per interval without bursts, as a token bucket.
func Every(interval time.Duration) Limit { return Per(1, interval) }

// PerCalendar returns a limit of n per calendar day, week, month or year in a time zone, as a fixed window. A nil zone
// means UTC. Days have their true length: 23 or 25 hours when the clocks change.
func PerCalendar(n int64, unit CalendarUnit, zone *time.Location) Limit {
	return Limit{Count: n, Algorithm: FixedWindow, Align: AlignCalendar, Calendar: unit, Zone: zone}
}

// DefaultPermitTTL is the permit TTL of [Concurrent]: the time after which permits of a crashed process expire.
const DefaultPermitTTL = 30 * time.Second

// Concurrent returns a limit of n requests in flight, with permits of [DefaultPermitTTL].
func Concurrent(n int64) Limit {
	return Limit{Count: n, Window: DefaultPermitTTL, Algorithm: Concurrency}
}

// WithPermitTTL returns a [Concurrency] limit with another permit TTL: the time after which permits of a crashed
// process expire. Permits of a running process are renewed every d/3.
func (l Limit) WithPermitTTL(d time.Duration) Limit {
	l.Window, l.ttlOfOther = d, l.Algorithm != Concurrency
	return l
}

// WithBurst returns the limit with a burst of n.
func (l Limit) WithBurst(n int64) Limit { l.Burst = n; return l }

// StartEmpty is the value of [Limit.Initial] for a bucket that is empty at a key's first request.
const StartEmpty = -1

// WithInitial returns the limit with a bucket level of n at a key's first request, from 0 to the burst; see
// [Limit.Initial].
func (l Limit) WithInitial(n int64) Limit {
	if l.Initial = n; n == 0 {
		l.Initial = StartEmpty
	}
	return l
}

// WithAlgorithm returns the limit with another algorithm.
func (l Limit) WithAlgorithm(a Algorithm) Limit { l.Algorithm = a; return l }

// WithSoftExcess returns a soft limit: usage may exceed Count by over until d after it first exceeded Count.
func (l Limit) WithSoftExcess(over int64, d time.Duration) Limit {
	l.SoftExcess, l.SoftPeriod = over, d
	return l
}

// WithAlign returns the limit with another window alignment.
func (l Limit) WithAlign(a Align) Limit { l.Align = a; return l }

// LimitError describes an invalid field of a [Limit] and how to fix it.
type LimitError struct {
	Field string // name of the field of Limit
	Msg   string
}

func (e *LimitError) Error() string { return "sluice: limit: " + e.Field + ": " + e.Msg }

// Build validates the limit and returns a copy that stores can apply. The error joins a [LimitError] for each invalid
// field.
func (l Limit) Build() (*Limit, error) {
	l = l.withDefaults()
	if err := l.validate(); err != nil {
		return nil, err
	}
	p := step.Compile(l.stepParams())
	p.Owner = &l
	l.params = &p
	return &l, nil
}

// Max returns the maximum cost that can be allowed at once: Burst for a bucket, otherwise Count + SoftExcess.
func (l Limit) Max() int64 {
	if l = l.withDefaults(); l.isBucket() {
		return l.Burst
	}
	return l.Count + l.SoftExcess
}

func (l Limit) isBucket() bool {
	return l.Algorithm == TokenBucket || l.Algorithm == LeakyBucket || l.Algorithm == LeakyQueue
}

// startsAnywhere reports whether the limit supports Initial.
func (l Limit) startsAnywhere() bool {
	return l.Algorithm == TokenBucket && l.Refill == RefillContinuous
}

func (l Limit) withDefaults() Limit {
	if l.Burst == 0 && l.isBucket() {
		l.Burst = max(0, l.Count) // so that only Count is reported as invalid if it is negative
	}
	if l.Initial == l.Burst && l.startsAnywhere() {
		l.Initial = 0
	}
	if l.Align == AlignCalendar {
		if l.Zone == nil {
			l.Zone = time.UTC
		}
		if l.Window == 0 {
			l.Window = l.Calendar.nominal()
		}
	}
	return l
}

const (
	minWindow    = time.Millisecond
	maxWindow    = 366 * 24 * time.Hour
	maxPermitTTL = 24 * time.Hour
	// maxPerMicrosecond is the maximum rate of a bucket: 10 million per second.
	maxPerMicrosecond = 10
)

func (l Limit) validate() error {
	var faults []error
	fault := func(field, format string, args ...any) {
		faults = append(faults, &LimitError{field, fmt.Sprintf(format, args...)})
	}
	if l == (Limit{}) {
		fault("Count", "the limit is the zero Limit: use PerMinute(100), ParseLimit(\"100/min\") or a similar function")
		return errors.Join(faults...)
	}
	if int(l.Algorithm) >= len(algorithmNames) {
		fault("Algorithm", "unknown %v: use TokenBucket, LeakyBucket, LeakyQueue, FixedWindow, SlidingWindowLog, SlidingWindowCounter or Concurrency", l.Algorithm)
		return errors.Join(faults...)
	}
	l.validateWindow(fault)
	l.validateCount(fault)
	l.validateOptions(fault)
	return errors.Join(faults...)
}

func (l Limit) validateWindow(fault func(field, format string, args ...any)) {
	switch {
	case l.ttlOfOther && l.Algorithm != Concurrency:
		fault("Window", "WithPermitTTL is for Concurrency only: use Concurrent(%d), or Per(%d, window) for another window", l.Count, l.Count)
	case l.Align == AlignCalendar && l.Calendar.nominal() == 0:
		fault("Calendar", "AlignCalendar needs CalendarDay, CalendarWeek, CalendarMonth or CalendarYear: use PerCalendar(%d, CalendarDay, zone)", l.Count)
	case l.Align == AlignCalendar && l.Window != l.Calendar.nominal():
		fault("Window", "is set by Calendar: leave it out")
	case l.Align != AlignCalendar && l.Calendar != 0:
		fault("Calendar", "only with AlignCalendar: use PerCalendar(%d, unit, zone)", l.Count)
	case l.Window == 0:
		fault("Window", "is zero: write how long the limit is for, such as PerMinute(%d) or Per(%d, 10*time.Second)", l.Count, l.Count)
	case l.Algorithm == Concurrency && (l.Window < minWindow || l.Window > maxPermitTTL):
		fault("Window", "a TTL of %v is not between %v and %v: 30 s suits most", l.Window, minWindow, maxPermitTTL)
	case l.Window < minWindow || l.Window > maxWindow:
		fault("Window", "%v is not between %v and 366 days", l.Window, minWindow)
	case l.Window%time.Microsecond != 0:
		fault("Window", "%v is not a whole number of microseconds: use %v", l.Window, l.Window.Truncate(time.Microsecond))
	}
	if l.Align != AlignCalendar && l.Zone != nil {
		fault("Zone", "only with AlignCalendar: use PerCalendar(%d, CalendarDay, zone)", l.Count)
	}
}

func (l Limit) validateCount(fault func(field, format string, args ...any)) {
	micros := l.Window.Microseconds()
	switch {
	case l.Count < 0:
		fault("Count", "%d is negative: use a count of at least 1", l.Count)
	case l.Algorithm == Concurrency && l.Count > step.MaxLogCount:
		fault("Count", "at most %d can be in flight under one key: use a smaller count than %d", step.MaxLogCount, l.Count)
	case l.Count == 0 && l.Algorithm != FixedWindow:
		fault("Count", "is zero: use a count of at least 1, or WithAlgorithm(FixedWindow) to deny everything")
	case l.isBucket() && micros > 0 && l.Count/maxPerMicrosecond > micros:
		fault("Count", "%d per %v is more than 10 million a second", l.Count, l.Window)
	case l.Algorithm == SlidingWindowLog && l.Count > step.MaxLogCount:
		fault("Count", "a sliding log stores every request and holds at most %d: use WithAlgorithm(SlidingWindowCounter) for %d", step.MaxLogCount, l.Count)
	case !l.isBucket() && l.Count > step.MaxWindowCount:
		fault("Count", "%d is more than the %d a window can count: use a shorter window at the same rate, or a token bucket", l.Count, int64(step.MaxWindowCount))
	}
	switch {
	case l.Burst < 0:
		fault("Burst", "%d is negative: use at least 1, or leave it out for a burst of Count", l.Burst)
	case l.Burst > 0 && !l.isBucket():
		fault("Burst", "a %v has no burst: leave it out, or use TokenBucket", l.Algorithm)
	case l.isBucket() && l.Count > 0 && l.Burst > 0 && micros > 0 && float64(l.Burst)/float64(l.Count)*float64(micros) > step.Horizon:
		fault("Burst", "a burst of %d at %d per %v takes more than 100 years to refill: use a smaller one", l.Burst, l.Count, l.Window)
	}
}

func (l Limit) validateOptions(fault func(field, format string, args ...any)) {
	if l.Refill > RefillInterval || l.Refill == RefillInterval && l.Algorithm != TokenBucket {
		fault("Refill", "RefillInterval is for TokenBucket only")
	}
	switch {
	case l.Initial == 0:
	case l.Algorithm != TokenBucket:
		fault("Initial", "is for TokenBucket only: leave it out, a %v always starts unused", l.Algorithm)
	case l.Refill != RefillContinuous:
		fault("Initial", "a bucket with RefillInterval always starts full: leave one of them out")
	case l.Initial < StartEmpty:
		fault("Initial", "%d is negative: use at least 0", l.Initial)
	case l.Initial > l.Burst && l.Burst > 0:
		fault("Initial", "%d is more than a burst of %d holds: use at most that", l.Initial, l.Burst)
	}
	switch {
	case l.Align > AlignCalendar:
		fault("Align", "unknown alignment: use AlignEpoch, AlignFirstRequest or AlignCalendar")
	case l.Align == AlignCalendar && l.Algorithm != FixedWindow:
		fault("Align", "calendar windows differ in length, so only FixedWindow can be aligned to them")
	case l.Align == AlignFirstRequest && l.Algorithm != FixedWindow && l.Refill != RefillInterval:
		fault("Align", "AlignFirstRequest is for FixedWindow and for TokenBucket with RefillInterval; a %v has no windows to align", l.Algorithm)
	}
	if l.Rounding > RoundNearest || l.Rounding != RoundDown && l.Algorithm != SlidingWindowCounter {
		fault("Rounding", "is for SlidingWindowCounter only, RoundDown or RoundNearest")
	}
	switch {
	case l.SubWindows == 0 || l.SubWindows == 1:
	case l.Algorithm != SlidingWindowCounter:
		fault("SubWindows", "are for SlidingWindowCounter only")
	case l.SubWindows < 0 || l.SubWindows > step.MaxSlices:
		fault("SubWindows", "%d is not between 1 and %d", l.SubWindows, step.MaxSlices)
	case l.Window.Microseconds()%int64(l.SubWindows) != 0:
		fault("SubWindows", "%d does not divide a window of %v into whole microseconds: use another number", l.SubWindows, l.Window)
	case l.Window.Microseconds()/int64(l.SubWindows) < 1000:
		fault("SubWindows", "%d sub-windows of %v are shorter than 1 ms: use fewer", l.SubWindows, l.Window)
	}
	switch {
	case l.SoftExcess == 0 && l.SoftPeriod == 0:
	case l.Algorithm != FixedWindow:
		fault("SoftExcess", "soft limits are for FixedWindow; give a token bucket a larger Burst instead")
	case l.SoftExcess <= 0 || l.SoftPeriod <= 0:
		fault("SoftExcess", "a soft limit needs both SoftExcess (how much more) and SoftPeriod (how long), such as WithSoftExcess(2, 10*time.Second)")
	case l.SoftExcess > step.MaxWindowCount:
		fault("SoftExcess", "%d is more than a window can count", l.SoftExcess)
	case l.SoftPeriod%time.Microsecond != 0:
		fault("SoftPeriod", "%v is not a whole number of microseconds", l.SoftPeriod)
	}
}

func (l Limit) stepParams() step.Params {
	p := step.Params{
		Count: l.Count, Length: l.Window.Microseconds(), Burst: l.Burst, Align: step.Align(l.Align),
		SoftExcess: l.SoftExcess, SoftPeriod: l.SoftPeriod.Microseconds(), Nearest: l.Rounding == RoundNearest, Whole: l.whole,
	}
	if l.Initial != 0 {
		p.HasInitial, p.Initial = true, max(0, l.Initial)
	}
	switch l.Algorithm {
	case TokenBucket, LeakyBucket, LeakyQueue:
		p.Kind = step.Bucket
		p.Queue = l.Algorithm == LeakyQueue
		if l.Refill == RefillInterval {
			p.Kind = step.Interval
		}
	case FixedWindow:
		p.Kind = step.Window
	case SlidingWindowLog:
		p.Kind = step.Log
	case Concurrency:
		p.Kind = step.Permits
	case SlidingWindowCounter:
		p.Kind = step.Counter
		if l.SubWindows > 1 {
			p.Kind, p.Slices = step.Slices, int64(l.SubWindows)
		}
	}
	if l.Align == AlignCalendar {
		p.Length = l.Calendar.longest().Microseconds()
		p.Bounds, p.BoundsID = calendarBounds(l.Calendar, l.Zone)
	}
	return p
}

// Rate returns the limit's sustained rate per second, or NaN for a concurrency limit or a limit without a window.
func (l Limit) Rate() float64 {
	if l.Window <= 0 || l.Algorithm == Concurrency {
		return math.NaN()
	}
	return float64(l.Count) / l.Window.Seconds()
}

// supportsEventual reports whether rules with this limit may have [AccuracyEventual].
func (l *Limit) supportsEventual() bool {
	switch l.Algorithm {
	case FixedWindow:
		return l.SoftExcess == 0
	case SlidingWindowCounter:
		return l.SubWindows <= 1
	case TokenBucket, LeakyBucket:
		return l.Refill == RefillContinuous && l.withDefaults().Initial == 0
	}
	return false
}

// supportsLease reports whether rules with this limit may have [AccuracyLease].
func (l *Limit) supportsLease() bool {
	switch l.Algorithm {
	case FixedWindow:
		return l.SoftExcess == 0
	case TokenBucket, LeakyBucket:
		return l.Refill == RefillContinuous && l.withDefaults().Initial == 0
	}
	return false
}
