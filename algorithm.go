package sluice

import "fmt"

// Algorithm is how spending is counted.
type Algorithm uint8

const (
	// TokenBucket holds Burst tokens and is refilled at Count per Window. Idle time saves up a burst.
	TokenBucket Algorithm = iota
	// LeakyBucket is a meter: what was spent leaks away at Count per Window, and what would overflow Burst is denied.
	LeakyBucket
	// LeakyQueue is a leaky bucket as a first-in first-out queue of Burst places: a take that finds a place is allowed
	// with a Delay, after which it may go ahead. Departures are Window/Count apart.
	LeakyQueue
	// FixedWindow counts in windows one after the other. Around a boundary up to twice Count may pass in one window.
	FixedWindow
	// SlidingWindowLog remembers every request: never more than Count in any window at any instant. Up to 10,000 a window.
	SlidingWindowLog
	// SlidingWindowCounter estimates the sliding window from the counts of this window and the one before.
	SlidingWindowCounter
	// Concurrency limits what is in flight: Count permits, which are acquired, renewed while they are held and released. A
	// permit that is not renewed for Window, its TTL, is free: its holder is dead. See [Concurrent] and [Limiter.Acquire].
	Concurrency
)

var algorithmNames = [...]string{
	"token_bucket", "leaky_bucket", "leaky_queue", "fixed_window", "sliding_window_log", "sliding_window_counter",
	"concurrency",
}

// String returns the name that rule files use.
func (a Algorithm) String() string {
	if int(a) < len(algorithmNames) {
		return algorithmNames[a]
	}
	return fmt.Sprintf("algorithm(%d)", uint8(a))
}

// MarshalText returns the name that rule files use.
func (a Algorithm) MarshalText() ([]byte, error) {
	if int(a) >= len(algorithmNames) {
		return nil, fmt.Errorf("sluice: there is no %v", a)
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
	return fmt.Errorf("sluice: unknown algorithm %.40q: write one of %v", text, algorithmNames)
}

// Refill is when a token bucket is refilled.
type Refill uint8

const (
	RefillContinuous Refill = iota // a token each Window/Count
	RefillInterval                 // Count tokens at the end of each Window
)

// Align is where a window begins.
type Align uint8

const (
	AlignEpoch        Align = iota // at whole multiples of its length since the Unix epoch, the same for all keys
	AlignFirstRequest              // at a key's first request after its last window ended: resets are spread out
	AlignCalendar                  // at the start of a day, week or month in a time zone; see PerCalendar
)

// Rounding is what a sliding counter does with a fraction of a request.
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

// String returns the unit as rule files write it: "day", "week", "month", "year".
func (u CalendarUnit) String() string {
	return [...]string{"?", "day", "week", "month", "year", "?"}[min(u, CalendarYear+1)]
}
