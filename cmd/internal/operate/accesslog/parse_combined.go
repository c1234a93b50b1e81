package accesslog

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

var errFormat = errors.New(`neither JSON of Sluice nor the common or combined format, such as 192.0.2.1 - - [02/Jan/2026:15:04:05 +0000] "GET / HTTP/1.1" 200 512`)

// parseCombined reads a line such as
//
//	192.0.2.1 - ada [02/Jan/2026:15:04:05 +0000] "GET /posts?id=7 HTTP/1.1" 200 512 "-" "curl/8"
//
// The client may be a host name instead of an address; Record.Client is then unset.
func parseCombined(line string, r *Record) error {
	host, rest, ok := strings.Cut(line, " ")
	if !ok || host == "" {
		return errFormat
	}
	if a, err := netip.ParseAddr(host); err == nil {
		r.Client = a.WithZone("").Unmap()
	}
	// User names may contain spaces; they end at the bracket before the time.
	names, rest, ok := strings.Cut(rest, " [")
	if !ok {
		return errFormat
	}
	_, user, ok := strings.Cut(names, " ")
	if !ok {
		return errFormat
	}
	r.User = unquote(user)
	when, rest, ok := strings.Cut(rest, `] "`)
	if !ok {
		return errFormat
	}
	var err error
	if r.Time, err = parseTime(when); err != nil {
		return errFormat
	}
	request, rest, ok := quotedEnd(rest)
	if !ok {
		return errFormat
	}
	if err := parseRequest(request, r); err != nil {
		return err
	}
	return parseResponse(rest, r)
}

// parseResponse reads the rest of the line after the request: ` 200 512 "referer" "agent"`.
func parseResponse(rest string, r *Record) error {
	rest = strings.TrimPrefix(rest, " ")
	status, rest, _ := strings.Cut(rest, " ")
	var err error
	if r.Status, err = strconv.Atoi(status); err != nil || r.Status < 0 || r.Status > 999 {
		return errFormat
	}
	size, rest, _ := strings.Cut(rest, " ")
	if size != "-" {
		if r.BytesOut, err = strconv.ParseInt(size, 10, 64); err != nil || r.BytesOut < 0 {
			return errFormat
		}
	}
	for _, field := range []*string{&r.Referer, &r.UserAgent} {
		if !strings.HasPrefix(rest, `"`) {
			return nil
		}
		text, more, ok := quotedEnd(rest[1:])
		if !ok {
			return errFormat
		}
		*field, rest = unquote(text), strings.TrimPrefix(more, " ")
	}
	return nil
}

// parseRequest reads "GET /posts?id=7 HTTP/1.1". A path may contain spaces.
func parseRequest(s string, r *Record) error {
	method, target, ok := strings.Cut(s, " ")
	if !ok || method == "" {
		return errors.New("request without method and path: not HTTP, and so not subject to rules")
	}
	if i := strings.LastIndexByte(target, ' '); i >= 0 && strings.HasPrefix(target[i+1:], "HTTP/") {
		target, r.Proto = target[:i], unquote(target[i+1:])
	}
	r.Method = unquote(method)
	path, query, _ := strings.Cut(target, "?")
	r.Path, r.Query = unquote(path), unquote(query)
	return nil
}

// quotedEnd splits s at the closing quote.
func quotedEnd(s string) (text, rest string, ok bool) {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return s[:i], s[i+1:], true
		}
	}
	return "", "", false
}

// unquote removes the escapes of nginx and Apache; "-" means empty.
func unquote(s string) string {
	if s == "-" {
		return ""
	}
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b = append(b, s[i])
			continue
		}
		i++
		switch c := s[i]; c {
		case 'x', 'X':
			if v, ok := hexByte(s[i+1:]); ok {
				b = append(b, v)
				i += 2
				continue
			}
			b = append(b, '\\', c)
		case 'n':
			b = append(b, '\n')
		case 'r':
			b = append(b, '\r')
		case 't':
			b = append(b, '\t')
		case '"', '\\':
			b = append(b, c)
		default:
			b = append(b, '\\', c)
		}
	}
	return string(b)
}

func hexByte(s string) (byte, bool) {
	if len(s) < 2 {
		return 0, false
	}
	hi, lo := hexValue(s[0]), hexValue(s[1])
	return byte(hi<<4 | lo), hi >= 0 && lo >= 0
}

func hexValue(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// parseTime reads 02/Jan/2006:15:04:05 -0700. It takes 10 % of the time of [time.Parse], which would take 50 % of the time
// of a replay.
func parseTime(s string) (time.Time, error) {
	if len(s) != len(combinedTime) || s[2] != '/' || s[6] != '/' || s[11] != ':' || s[14] != ':' || s[17] != ':' || s[20] != ' ' {
		return time.Time{}, errFormat
	}
	month := strings.Index("JanFebMarAprMayJunJulAugSepOctNovDec", s[3:6])
	day, year := digits(s[0:2]), digits(s[7:11])
	hour, minute, second := digits(s[12:14]), digits(s[15:17]), digits(s[18:20])
	zoneHour, zoneMinute := digits(s[22:24]), digits(s[24:26])
	if month < 0 || month%3 != 0 || day < 1 || day > 31 || year < 0 || hour < 0 || hour > 23 || minute < 0 || minute > 59 ||
		second < 0 || second > 60 || zoneHour < 0 || zoneHour > 23 || zoneMinute < 0 || zoneMinute > 59 || s[21] != '+' && s[21] != '-' {
		return time.Time{}, errFormat
	}
	offset := time.Duration(zoneHour)*time.Hour + time.Duration(zoneMinute)*time.Minute
	if s[21] == '-' {
		offset = -offset
	}
	return time.Date(year, time.Month(month/3+1), day, hour, minute, second, 0, time.UTC).Add(-offset), nil
}

// digits returns s as a number, or -1 if it is none.
func digits(s string) int {
	n := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return -1
		}
		n = n*10 + int(s[i]-'0')
	}
	return n
}
