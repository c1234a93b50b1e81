package accesslog

import (
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Format is the format of a line.
type Format uint8

const (
	JSON     Format = iota // an object with all fields
	Combined               // the combined format of nginx and Apache; most fields are missing
)

const timeFormat = "2006-01-02T15:04:05.000000Z07:00"

// AppendJSON appends a line to b, as a [Log] in the format JSON writes it.
func AppendJSON(b []byte, r *Record, query bool) []byte {
	b = append(b, `{"time":"`...)
	b = r.Time.UTC().AppendFormat(b, timeFormat)
	b = append(b, '"')
	b = appendSeconds(b, `,"duration_seconds":`, r.Duration)
	b = appendText(b, `,"method":"`, r.Method, maxName)
	b = appendText(b, `,"host":"`, r.Host, maxName)
	b = appendText(b, `,"path":"`, r.Path, maxTarget)
	if query {
		b = appendText(b, `,"query":"`, r.Query, maxTarget)
	}
	b = appendText(b, `,"proto":"`, r.Proto, maxName)
	b = append(b, `,"status":`...)
	b = strconv.AppendInt(b, int64(r.Status), 10)
	b = append(b, `,"bytes_in":`...)
	b = strconv.AppendInt(b, r.BytesIn, 10)
	b = append(b, `,"bytes_out":`...)
	b = strconv.AppendInt(b, r.BytesOut, 10)
	if r.Client.IsValid() {
		b = append(b, `,"client_ip":"`...)
		b = append(r.Client.WithZone("").AppendTo(b), '"') // a zone is meaningful on one host only
	}
	b = appendText(b, `,"user":"`, r.User, maxName)
	b = appendText(b, `,"plan":"`, r.Plan, maxName)
	b = appendText(b, `,"route":"`, r.Route, maxName)
	b = appendText(b, `,"upstream":"`, r.Upstream, maxName)
	b = appendText(b, `,"server":"`, r.Server, maxName)
	b = appendText(b, `,"decision":"`, r.Decision.String(), maxName)
	b = appendText(b, `,"rule":"`, r.Rule, maxName)
	if r.Delay > 0 {
		b = appendSeconds(b, `,"delay_seconds":`, r.Delay)
	}
	b = appendText(b, `,"request_id":"`, r.ID, maxName)
	b = appendText(b, `,"queue_item":"`, r.Item, maxName)
	if r.Attempt > 0 {
		b = append(b, `,"attempt":`...)
		b = strconv.AppendInt(b, int64(r.Attempt), 10)
	}
	b = appendText(b, `,"outcome":"`, r.Outcome, maxName)
	b = appendText(b, `,"referer":"`, r.Referer, maxText)
	b = appendText(b, `,"user_agent":"`, r.UserAgent, maxText)
	return append(b, "}\n"...)
}

// appendSeconds appends a duration in seconds with six decimals, a number that other tools can read.
func appendSeconds(b []byte, name string, d time.Duration) []byte {
	b = append(b, name...)
	return strconv.AppendFloat(b, math.Round(d.Seconds()*1e6)/1e6, 'f', 6, 64)
}

// appendText appends a string and its closing quote, or nothing if it is empty.
func appendText(b []byte, name, s string, most int) []byte {
	if s == "" {
		return b
	}
	b = append(b, name...)
	s, cut := bounded(s, most)
	b = appendEscaped(b, s)
	if cut {
		b = append(b, ellipsis...)
	}
	return append(b, '"')
}

// ellipsis marks a truncated value.
const ellipsis = "…"

// bounded returns s truncated to at most most bytes, ellipsis included, and reports whether it was truncated.
func bounded(s string, most int) (string, bool) {
	if len(s) <= most {
		return s, false
	}
	most -= len(ellipsis) // so that a value that was read is not truncated again
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most], true
}

const hexDigits = "0123456789abcdef"

// appendEscaped appends s escaped for a JSON string. Characters that control terminals are escaped too, and invalid UTF-8
// becomes text: \xff.
func appendEscaped(b []byte, s string) []byte {
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			switch {
			case c == '"' || c == '\\':
				b = append(b, '\\', c)
			case c < ' ' || c == 0x7f:
				b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			default:
				b = append(b, c)
			}
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			b = append(b, '\\', '\\', 'x', hexDigits[c>>4], hexDigits[c&15])
		case unicode.IsPrint(r):
			b = append(b, s[i:i+n]...)
		case r > 0xffff: // a surrogate pair
			r -= 0x10000
			b = appendUnit(appendUnit(b, 0xd800+r>>10), 0xdc00+r&0x3ff)
		default:
			b = appendUnit(b, r)
		}
		i += n
	}
	return b
}

func appendUnit(b []byte, u rune) []byte {
	return append(b, '\\', 'u', hexDigits[u>>12&15], hexDigits[u>>8&15], hexDigits[u>>4&15], hexDigits[u&15])
}

// combinedTime is the time format of the combined format. Apache writes the start of a request, nginx its end.
const combinedTime = "02/Jan/2006:15:04:05 -0700"

// appendCombined appends a line to b.
func appendCombined(b []byte, r *Record, query bool) []byte {
	if r.Client.IsValid() {
		b = r.Client.WithZone("").AppendTo(b)
	} else {
		b = append(b, '-')
	}
	b = append(b, " - "...)
	b = appendQuoted(b, r.User, maxName, " [")
	b = append(b, " ["...)
	b = r.Time.UTC().AppendFormat(b, combinedTime)
	b = append(b, `] "`...)
	b = appendQuoted(b, r.Method, maxName, " ")
	b = append(b, ' ')
	b = appendQuoted(b, r.Path, maxTarget, " ?")
	if query && r.Query != "" {
		b = append(b, '?')
		b = appendQuoted(b, r.Query, maxTarget, " ")
	}
	if r.Proto != "" {
		b = append(b, ' ')
		b = appendQuoted(b, r.Proto, maxName, " ")
	}
	b = append(b, `" `...)
	b = strconv.AppendInt(b, int64(r.Status), 10)
	b = append(b, ' ')
	b = strconv.AppendInt(b, r.BytesOut, 10)
	b = append(b, ` "`...)
	b = appendQuoted(b, r.Referer, maxText, "")
	b = append(b, `" "`...)
	b = appendQuoted(b, r.UserAgent, maxText, "")
	return append(b, "\"\n"...)
}

// appendQuoted appends s escaped as nginx does: bytes that are not printable ASCII, or in also because they would end the
// field, become \xHH.
func appendQuoted(b []byte, s string, most int, also string) []byte {
	if s == "" || s == "-" {
		if s == "-" { // means empty
			return append(b, `\x2d`...)
		}
		return append(b, '-')
	}
	if len(s) > most {
		s = s[:most]
	}
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' || strings.IndexByte(also, c) >= 0 {
			b = append(b, '\\', 'x', hexDigits[c>>4], hexDigits[c&15])
		} else {
			b = append(b, c)
		}
	}
	return b
}
