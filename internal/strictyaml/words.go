package strictyaml

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// ParseDuration reads Go's durations, and d and w for days and weeks of 24 and 168 hours: "90s", "1h30m", "7d".
func ParseDuration(s string) (time.Duration, error) {
	if strings.Contains(s, "+") { // valid in Go, not in files
		return 0, fmt.Errorf("%s is not a duration", Quote(s))
	}
	var sum time.Duration
	rest := s
	for rest != "" {
		unit := strings.IndexAny(rest, "dw")
		if unit <= 0 {
			break
		}
		end := strings.IndexFunc(rest, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
		if end != unit {
			break
		}
		// A day is parsed as 24 Go hours, so that Go's parser handles fractions and overflow.
		hours, err := time.ParseDuration(rest[:unit] + "h")
		times := time.Duration(24)
		if rest[unit] == 'w' {
			times = 7 * 24
		}
		if err != nil || hours > math.MaxInt64/times || sum > math.MaxInt64-hours*times {
			return 0, fmt.Errorf("%s is not a duration", Quote(s))
		}
		sum += hours * times
		rest = rest[unit+1:]
	}
	if rest == "" && s != "" {
		return sum, nil
	}
	d, err := time.ParseDuration(rest)
	if err != nil || rest != s && strings.Trim(rest, "-") == "0" || d < 0 && sum > 0 || d > math.MaxInt64-sum {
		return 0, fmt.Errorf("%s is not a duration", Quote(s))
	}
	return sum + d, nil
}
