package sluice

import "fmt"

// Algorithm is a rate limiting algorithm.
type Algorithm uint8

const (
	// TokenBucket holds up to Burst tokens and is refilled at Count per Window. An idle key saves up a full burst.
	TokenBucket Algorithm = iota
	// LeakyBucket is a leaky bucket as a meter: usage drains at Count per Window, and a take that would overflow Burst
	// is denied.
	LeakyBucket
	// LeakyQueue is a leaky bucket as a FIFO queue of Burst places. A take that finds a place is allowed with a Delay,
	// after which it may proceed. Departures are Window/Count apart.
	LeakyQueue
	// FixedWindow counts in consecutive windows. Around a boundary up to 2 × Count may be allowed within one window
	// length.
	FixedWindow
	// SlidingWindowLog stores the time of every request: at most Count in any window at any instant. Count is at most
	// 10,000.
	SlidingWindowLog
	// SlidingWindowCounter estimates the sliding window from the counts of the current and the previous window.
	SlidingWindowCounter
	// Concurrency limits the requests in flight: Count permits, which are acquired, renewed while held, and released. A
	// permit that is not renewed for Window, its TTL, expires. See [Concurrent] and [Limiter.Acquire].
	Concurrency
)

var algorithmNames = [...]string{
	"token_bucket", "leaky_bucket", "leaky_queue", "fixed_window", "sliding_window_log", "sliding_window_counter",
	"concurrency",
}

// String returns the algorithm's name in rule files.
func (a Algorithm) String() string {
	if int(a) < len(algorithmNames) {
		return algorithmNames[a]
	}
	return fmt.Sprintf("algorithm(%d)", uint8(a))
}

// MarshalText returns the algorithm's name in rule files.
func (a Algorithm) MarshalText() ([]byte, error) {
	if int(a) >= len(algorithmNames) {
		return nil, fmt.Errorf("sluice: unknown %v", a)
	}
	return []byte(a.String()), nil
}

// UnmarshalText accepts the names that String returns.
func (a *Algorithm) UnmarshalText(text []byte) error {
	for i, name := range algorithmNames {
		if name == string(text) {
			*a = Algorithm(i)
			return nil
		}
	}
	return fmt.Errorf("sluice: unknown algorithm %.40q: use one of %v", text, algorithmNames)
}

// Refill selects when a token bucket is refilled.
type Refill uint8

const (
	RefillContinuous Refill = iota // one token every Window/Count
	RefillInterval                 // Count tokens at the end of each Window
)

// Align selects where windows begin.
type Align uint8

const (
	AlignEpoch        Align = iota // at multiples of the window length since the Unix epoch, the same for all keys
	AlignFirstRequest              // at a key's first request after its last window ended, which spreads resets over time
	AlignCalendar                  // at the start of a calendar day, week, month or year in a time zone; see PerCalendar
)

// Rounding selects how a sliding window counter rounds a fraction of a request.
type Rounding uint8

const (
	RoundDown    Rounding = iota // 6.5 counts as 6
	RoundNearest                 // 6.5 counts as 7
)

// CalendarUnit is the length of a calendar window.
type CalendarUnit uint8

const (
	CalendarDay   CalendarUnit = iota + 1 // from midnight to midnight, 23 to 25 hours
	CalendarWeek                          // from Monday to Monday
	CalendarMonth                         // from the 1st to the 1st
	CalendarYear                          // from January 1st to January 1st
)

// String returns the unit's name in rule files: "day", "week", "month" or "year".
func (u CalendarUnit) String() string {
	return [...]string{"?", "day", "week", "month", "year", "?"}[min(u, CalendarYear+1)]
}
