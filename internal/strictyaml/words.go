package strictyaml

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
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

// durationForm matches the form of durations, including those that are too long for [ParseDuration].
var durationForm = regexp.MustCompile(`^(([0-9]+(\.[0-9]*)?|\.[0-9]+)[dw])*(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))*$`)

// durationText returns a duration as in files, in days if it has at least two, rounded down.
func durationText(d time.Duration) string {
	const day = 24 * time.Hour
	if d >= 2*day {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
