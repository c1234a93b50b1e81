package logs

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// parseTime parses the times of logs: RFC 3339 with any number of decimals, the same with a space instead of T or without
// a zone (UTC), [02/Jan/2006:15:04:05 -0700], and Unix times in seconds, milliseconds, microseconds or nanoseconds, which
// their size tells apart. Decimals beyond nanoseconds are dropped.
func parseTime(s string) (time.Time, error) {
	switch {
	case len(s) >= 19 && s[4] == '-' && s[7] == '-':
		if t, ok := parseISO(s); ok {
			return t, nil
		}
	case len(s) > 2 && s[0] == '[' && s[len(s)-1] == ']':
		return parseTime(s[1 : len(s)-1])
	case len(s) == len(clfTime):
		if t, err := parseCLFTime(s); err == nil {
			return t, nil
		}
	default:
		if t, ok := parseUnix(s); ok {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("time %.40q: neither RFC 3339, such as 2026-01-02T15:04:05.000001Z, nor a Unix time nor 02/Jan/2026:15:04:05 +0000", s)
}

// parseISO parses 2006-01-02T15:04:05.000Z and its variants.
func parseISO(s string) (time.Time, bool) {
	if s[10] != 'T' && s[10] != 't' && s[10] != ' ' || s[13] != ':' || s[16] != ':' {
		return time.Time{}, false
	}
	year, month, day := digits(s[0:4]), digits(s[5:7]), digits(s[8:10])
	hour, minute, second := digits(s[11:13]), digits(s[14:16]), digits(s[17:19])
	if year < 0 || month < 1 || month > 12 || day < 1 || day > daysOf(year, month) || !isClock(hour, minute, second) {
		return time.Time{}, false
	}
	rest, nanos := s[19:], 0
	if rest != "" && (rest[0] == '.' || rest[0] == ',') {
		n := 1
		for unit := 100_000_000; n < len(rest) && rest[n] >= '0' && rest[n] <= '9'; n++ {
			nanos += unit * int(rest[n]-'0')
			unit /= 10
		}
		if n == 1 {
			return time.Time{}, false
		}
		rest = rest[n:]
	}
	offset, ok := parseZone(strings.TrimLeft(rest, " "))
	return time.Date(year, time.Month(month), day, hour, minute, second, nanos, time.UTC).Add(-offset), ok
}

// parseZone parses Z, +07, +0700, +07:00 and UTC; an empty zone is UTC.
func parseZone(s string) (time.Duration, bool) {
	switch s {
	case "", "Z", "z", "UTC", "GMT":
		return 0, true
	}
	if s[0] != '+' && s[0] != '-' {
		return 0, false
	}
	hours, minutes := s[1:], "00"
	switch len(s) {
	case 3:
	case 5:
		hours, minutes = s[1:3], s[3:]
	case 6:
		if s[3] != ':' {
			return 0, false
		}
		hours, minutes = s[1:3], s[4:]
	default:
		return 0, false
	}
	h, m := digits(hours), digits(minutes)
	d := time.Duration(h)*time.Hour + time.Duration(m)*time.Minute
	if s[0] == '-' {
		d = -d
	}
	return d, h >= 0 && h <= 23 && m >= 0 && m <= 59
}

// parseUnix parses a Unix time. Seconds have up to 11 digits before the point, milliseconds up to 14, microseconds up to 17.
func parseUnix(s string) (time.Time, bool) {
	before, after, _ := strings.Cut(s, ".")
	n, err := strconv.ParseInt(before, 10, 64)
	if err != nil || n < 0 || strings.IndexByte("+-", before[0]) >= 0 {
		return parseScientific(s)
	}
	unit := int64(time.Second)
	switch {
	case n >= 1e17:
		unit = 1
	case n >= 1e14:
		unit = int64(time.Microsecond)
	case n >= 1e11:
		unit = int64(time.Millisecond)
	}
	nanos, part := int64(0), unit
	for i := range len(after) {
		if after[i] < '0' || after[i] > '9' {
			return parseScientific(s)
		}
		part /= 10
		nanos += part * int64(after[i]-'0')
	}
	each := int64(time.Second) / unit
	return time.Unix(n/each, n%each*unit+nanos).UTC(), true
}

// parseScientific parses a Unix time in seconds such as 1.7e9.
func parseScientific(s string) (time.Time, bool) {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || !strings.ContainsAny(s, "eE") || !(f >= 0 && f < 1e11) {
		return time.Time{}, false
	}
	return time.UnixMicro(int64(math.Round(f * 1e6))).UTC(), true
}

func daysOf(year, month int) int {
	return time.Date(year, time.Month(month)+1, 0, 0, 0, 0, 0, time.UTC).Day()
}

func isClock(hour, minute, second int) bool {
	return hour >= 0 && hour <= 23 && minute >= 0 && minute <= 59 && second >= 0 && second <= 60
}

// parseDuration parses a number of units, or a duration such as 1.5ms or 0.25s.
func parseDuration(s string, unit time.Duration) (time.Duration, error) {
	f, err := strconv.ParseFloat(s, 64)
	if err == nil {
		if d := f * float64(unit); d >= 0 && d <= float64(maxDuration) {
			return time.Duration(math.Round(d/1e3)) * time.Microsecond, nil
		}
		return 0, errDuration
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 && d <= maxDuration {
		return d.Round(time.Microsecond), nil
	}
	return 0, errDuration
}

var errDuration = errors.New("not a duration")

// maxDuration is the maximum duration of a request.
const maxDuration = 366 * 24 * time.Hour

// clfTime is the time format of the common and combined formats.
const clfTime = "02/Jan/2006:15:04:05 -0700"

var errTime = errors.New("invalid time: expected one such as 02/Jan/2026:15:04:05 +0000")

// parseCLFTime takes 10 % of the time of [time.Parse], which would take 50 % of the time of a replay.
func parseCLFTime(s string) (time.Time, error) {
	if len(s) != len(clfTime) || s[2] != '/' || s[6] != '/' || s[11] != ':' || s[14] != ':' || s[17] != ':' || s[20] != ' ' {
		return time.Time{}, errTime
	}
	month := strings.Index("JanFebMarAprMayJunJulAugSepOctNovDec", s[3:6])
	day, year := digits(s[0:2]), digits(s[7:11])
	hour, minute, second := digits(s[12:14]), digits(s[15:17]), digits(s[18:20])
	offset, ok := parseZone(s[21:])
	if month < 0 || month%3 != 0 || day < 1 || year < 0 || !isClock(hour, minute, second) || !ok || day > daysOf(year, month/3+1) {
		return time.Time{}, errTime
	}
	return time.Date(year, time.Month(month/3+1), day, hour, minute, second, 0, time.UTC).Add(-offset), nil
}

// digits returns s as a number, or -1 if it is none.
func digits(s string) int {
	if s == "" {
		return -1
	}
	n := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return -1
		}
		n = n*10 + int(s[i]-'0')
	}
	return n
}
