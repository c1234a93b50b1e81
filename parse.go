package sluice

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// units are the units accepted after the slash. A month has 30 days and a year 365; for calendar months see
// PerCalendar.
var units = map[string]time.Duration{
	"ms": time.Millisecond, "millisecond": time.Millisecond,
	"s": time.Second, "sec": time.Second, "second": time.Second,
	"m": time.Minute, "min": time.Minute, "minute": time.Minute,
	"h": time.Hour, "hour": time.Hour,
	"d": day, "day": day,
	"w": 7 * day, "week": 7 * day,
	"month": 30 * day,
	"y":     365 * day, "year": 365 * day,
}

// ParseLimit parses a limit such as "10/s", "300/3h", "5/week", "10k/min" or "1/500ms" as a token bucket; see
// [Limit.WithAlgorithm] for others. "5 concurrent" and "5 concurrent ttl 10s" are concurrency limits. The values are
// validated when the limit is built.
func ParseLimit(s string) (Limit, error) {
	fail := func(why string) (Limit, error) {
		return Limit{}, fmt.Errorf(`sluice: limit %.40q: %s: write COUNT/UNIT, such as "10/s", "300/3h" or "5/week"`, s, why)
	}
	if words := strings.Fields(s); len(words) > 1 && words[1] == concurrent {
		return parseConcurrent(s, words)
	}
	count, unit, found := strings.Cut(s, "/")
	if !found {
		return fail("there is no slash")
	}
	n, err := parseCount(strings.TrimSpace(count))
	if err != nil {
		return fail(err.Error())
	}
	window, err := parseWindow(strings.ToLower(strings.TrimSpace(unit)))
	if err != nil {
		return fail(err.Error())
	}
	return Per(n, window), nil
}

const concurrent = "concurrent"

// parseConcurrent parses "5 concurrent" and "5 concurrent ttl 10s".
func parseConcurrent(s string, words []string) (Limit, error) {
	n, err := parseCount(words[0])
	if err == nil && len(words) == 2 {
		return Concurrent(n), nil
	}
	if err == nil && len(words) == 4 && words[2] == "ttl" {
		var ttl time.Duration
		if ttl, err = parseWindow(strings.ToLower(words[3])); err == nil && words[3][0] >= '0' && words[3][0] <= '9' {
			return Concurrent(n).WithPermitTTL(ttl), nil
		}
	}
	return Limit{}, fmt.Errorf(`sluice: limit %.40q: write COUNT concurrent, such as "5 concurrent" or "5 concurrent ttl 10s"`, s)
}

// parseCount parses "300", "10_000", "10k" and "2M".
func parseCount(s string) (int64, error) {
	digits, scale := s, int64(1)
	switch {
	case strings.HasSuffix(s, "k"):
		digits, scale = s[:len(s)-1], 1000
	case strings.HasSuffix(s, "M"):
		digits, scale = s[:len(s)-1], 1_000_000
	}
	digits = strings.ReplaceAll(digits, "_", "")
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || n > math.MaxInt64/uint64(scale) {
		return 0, fmt.Errorf("%.20q is not a count", s)
	}
	return int64(n) * scale, nil
}

// parseWindow parses "s", "3h" and "90 days".
func parseWindow(s string) (time.Duration, error) {
	i := 0
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	n := int64(1)
	if i > 0 {
		var err error
		if n, err = strconv.ParseInt(s[:i], 10, 64); err != nil {
			return 0, fmt.Errorf("%.20q is not a number", s[:i])
		}
	}
	name := strings.TrimSpace(s[i:])
	unit, known := units[name]
	if !known && len(name) > 3 { // "mss" is not a unit
		unit, known = units[strings.TrimSuffix(name, "s")]
	}
	if !known {
		return 0, fmt.Errorf("%.20q is not a unit (ms, s, m or min, h, d or day, w or week, month, y or year)", name)
	}
	if n <= 0 || n > int64(maxWindow/unit)+1 {
		return 0, fmt.Errorf("%d %s is not between 1 ms and 366 days", n, name)
	}
	return time.Duration(n) * unit, nil
}

// String returns the limit in the format of [ParseLimit], followed by settings that the format cannot express.
func (l Limit) String() string {
	var b strings.Builder
	b.WriteString(strconv.FormatInt(l.Count, 10))
	if l.Algorithm == Concurrency {
		b.WriteString(" " + concurrent)
		if l.Window != DefaultPermitTTL {
			b.WriteString(" ttl " + l.ttlName())
		}
		return b.String()
	}
	b.WriteByte('/')
	b.WriteString(l.windowName())
	if l.isBucket() && l.Burst != 0 && l.Burst != l.Count {
		fmt.Fprintf(&b, " burst %d", l.Burst)
	}
	if l.Initial != 0 {
		fmt.Fprintf(&b, " initial %d", max(0, l.Initial))
	}
	if l.Algorithm != TokenBucket {
		fmt.Fprintf(&b, " %v", l.Algorithm)
	}
	if l.SoftExcess > 0 {
		fmt.Fprintf(&b, " soft +%d for %v", l.SoftExcess, l.SoftPeriod)
	}
	return b.String()
}

func (l Limit) windowName() string {
	if l.Align == AlignCalendar {
		if l.Zone == nil {
			return "calendar " + l.Calendar.String()
		}
		return "calendar " + l.Calendar.String() + " in " + l.Zone.String()
	}
	for _, u := range []struct {
		name string
		d    time.Duration
	}{{"week", 7 * day}, {"day", day}, {"h", time.Hour}, {"min", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond}} {
		if l.Window > 0 && l.Window%u.d == 0 {
			if n := l.Window / u.d; n > 1 {
				return strconv.FormatInt(int64(n), 10) + u.name
			}
			return u.name
		}
	}
	return l.Window.String()
}

// ttlName is like windowName, but always with a number before the unit.
func (l Limit) ttlName() string {
	name := l.windowName()
	if name[0] < '0' || name[0] > '9' {
		name = "1" + name
	}
	return name
}
