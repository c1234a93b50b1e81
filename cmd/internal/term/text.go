package term

import (
	"strconv"
	"strings"
	"time"
)

// Thousands formats a number with commas: 10,000.
func Thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// DurationInWords formats a duration in its largest exact unit: "1 second", "3 hours", "90 seconds".
func DurationInWords(d time.Duration) string {
	for _, u := range []struct {
		name   string
		length time.Duration
	}{
		{"week", 7 * 24 * time.Hour},
		{"day", 24 * time.Hour},
		{"hour", time.Hour},
		{"minute", time.Minute},
		{"second", time.Second},
		{"millisecond", time.Millisecond},
	} {
		if d > 0 && d%u.length == 0 {
			return Count(int(d/u.length), u.name)
		}
	}
	return d.String()
}

// ShellQuoted quotes a word for a shell, if it needs quotes.
func ShellQuoted(word string) string {
	special := func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r > 0x7f
		return !letter && !strings.ContainsRune("-_=./:@,+%#", r)
	}
	if word != "" && word[0] != '#' && word[0] != '=' && !strings.ContainsFunc(word, special) {
		return Printable(word)
	}
	return "'" + strings.ReplaceAll(Printable(word), "'", `'\''`) + "'"
}

// Seconds converts seconds of the API to a duration. It rounds up, so that a client that waits that long has waited long enough.
func Seconds(s float64) time.Duration {
	d, unit := time.Duration(s*float64(time.Second)), time.Millisecond
	switch {
	case d >= time.Minute:
		unit = time.Second
	case d >= time.Second:
		unit = 10 * time.Millisecond
	}
	return (max(d, 0) + unit - 1).Truncate(unit)
}
