package logs

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"
)

var errCombined = errors.New(`not a line such as 192.0.2.1 - - [02/Jan/2026:15:04:05 +0000] "GET / HTTP/1.1" 200 512`)

// combinedParser reads the common and combined formats of nginx and Apache, such as
//
//	192.0.2.1 - ada [02/Jan/2026:15:04:05 +0000] "GET /posts?id=7 HTTP/1.1" 200 512 "-" "curl/8"
//
// The client may be a host name instead of an address. Additional fields at the end are found by name or number; the first
// one that looks like nginx's $request_time, which has three decimals, is the duration, and then the time is the end.
type combinedParser struct{ kind combinedKind }

type combinedKind uint8

const (
	kindCommon   combinedKind = iota // nothing after the size
	kindCombined                     // referer, user agent and additional fields, each of which may be missing
	kindTraefik                      // combined, and number, router, server and duration
)

func (p combinedParser) parse(line string, e *Entry) error {
	r := &e.Record
	host, rest, ok := strings.Cut(line, " ")
	if !ok || host == "" || strings.ContainsAny(host, `"[{`) && host[0] != '[' {
		return errCombined
	}
	if a, err := netip.ParseAddr(host); err == nil {
		r.Client = a.WithZone("").Unmap()
	} else {
		e.setClient(host)
	}
	// User names may contain spaces; they end at the bracket before the time.
	names, rest, ok := strings.Cut(rest, " [")
	if !ok {
		return errCombined
	}
	_, user, ok := strings.Cut(names, " ")
	if !ok {
		return errCombined
	}
	r.User = unquote(user)
	when, rest, ok := strings.Cut(rest, `] "`)
	if !ok {
		return errCombined
	}
	var err error
	if r.Time, err = parseCLFTime(when); err != nil {
		return err
	}
	request, rest, ok := quotedEnd(rest)
	if !ok {
		return errCombined
	}
	if err := e.setQuotedRequest(request); err != nil {
		return err
	}
	return p.response(rest, e)
}

// setQuotedRequest reads `GET /posts?id=7 HTTP/1.1` with the escapes of nginx and Apache.
func (e *Entry) setQuotedRequest(s string) error {
	if strings.IndexByte(s, '\\') < 0 {
		return e.setRequest(s)
	}
	// Escapes are removed from the parts: an escaped space or question mark does not end a part.
	method, target, ok := strings.Cut(s, " ")
	if !ok || method == "" {
		return errRequest
	}
	r := &e.Record
	if i := strings.LastIndexByte(target, ' '); i >= 0 && strings.HasPrefix(target[i+1:], "HTTP/") {
		target, r.Proto = target[:i], unquote(target[i+1:])
	}
	r.Method = unquote(method)
	path, query, _ := strings.Cut(target, "?")
	r.Path, r.Query = unquote(path), unquote(query)
	return nil
}

// response reads the line after the request: ` 200 512 "referer" "agent"` and additional fields.
func (p combinedParser) response(rest string, e *Entry) error {
	status, rest, _ := strings.Cut(strings.TrimPrefix(rest, " "), " ")
	r := &e.Record
	var err error
	if r.Status, err = strconv.Atoi(status); err != nil || r.Status < 0 || r.Status > 999 {
		return errCombined
	}
	size, rest, _ := strings.Cut(rest, " ")
	if size != "-" {
		if r.BytesOut, err = strconv.ParseInt(size, 10, 64); err != nil || r.BytesOut < 0 {
			return errCombined
		}
	}
	if p.kind == kindCommon {
		if rest != "" {
			return errCombined
		}
		return nil
	}
	for _, f := range []*string{&r.Referer, &r.UserAgent} {
		if !strings.HasPrefix(rest, `"`) {
			break
		}
		text, more, ok := quotedEnd(rest[1:])
		if !ok {
			return errCombined
		}
		*f, rest = unquote(text), strings.TrimPrefix(more, " ")
	}
	return p.extras(rest, e)
}

// extras reads the duration among the additional fields.
func (p combinedParser) extras(rest string, e *Entry) error {
	if p.kind == kindTraefik {
		var last string
		n := 0
		for t, more := token(rest); t != ""; t, more = token(more) {
			last = t
			n++
		}
		ms, ok := strings.CutSuffix(last, "ms")
		if !ok || n != 4 {
			return errCombined
		}
		e.isStart = true
		return attrDurationMillis.set(e, ms)
	}
	for t, more := token(rest); t != ""; t, more = token(more) {
		if name, v, _ := strings.Cut(t, "="); t[0] != '"' && isRequestTime(name, v) {
			return attrDuration.set(e, t[len(t)-len(v):])
		} else if v == "" && isSeconds(t) {
			return attrDuration.set(e, t)
		}
	}
	return nil
}

// isRequestTime reports whether name=v is a request time of nginx.
func isRequestTime(name, v string) bool {
	return (name == "rt" || name == "request_time") && isSeconds(v)
}

// isSeconds reports whether v is a number with three decimals.
func isSeconds(v string) bool {
	before, after, ok := strings.Cut(v, ".")
	return ok && len(after) == 3 && digits(before) >= 0 && len(before) < 8 && digits(after) >= 0
}

// token returns the first field of a line whose fields are separated by spaces, with the quotes or brackets around it, and
// the rest of the line. It returns "" at the end.
func token(line string) (first, rest string) {
	line = strings.TrimLeft(line, " ")
	switch {
	case line == "":
		return "", ""
	case line[0] == '"':
		if text, more, ok := quotedEnd(line[1:]); ok {
			return line[:len(text)+2], more
		}
	case line[0] == '[':
		if i := strings.IndexByte(line, ']'); i > 0 {
			return line[:i+1], line[i+1:]
		}
	}
	if i := strings.IndexByte(line, ' '); i >= 0 {
		return line[:i], line[i:]
	}
	return line, ""
}

// text returns the content of a token: without quotes and escapes, and "" for -.
func text(t string) string {
	if len(t) >= 2 && t[0] == '"' {
		return unquote(t[1 : len(t)-1])
	}
	if t == "-" {
		return ""
	}
	return t
}

func (combinedParser) mapping() []column { return nil }

// fields calls add for each additional field. nginx's default format ends with the header X-Forwarded-For.
func (p combinedParser) fields(line string, add func(name, value string)) {
	_, rest, _ := strings.Cut(line, `] "`)
	_, rest, _ = quotedEnd(rest)
	n := 0
	for t, more := token(rest); t != ""; t, more = token(more) {
		n++
		name, v, named := strings.Cut(t, "=")
		switch {
		case n <= 4: // status, size, referer, user agent
		case t[0] != '"' && named && name != "":
			add(name, text(v))
		case n == 5 && t[0] == '"' && isForwardedFor(t):
			add("http_x_forwarded_for", text(t))
		default:
			add("extra"+strconv.Itoa(n-4), text(t))
		}
	}
}

// isForwardedFor reports whether a quoted field is a list of addresses.
func isForwardedFor(t string) bool {
	list := text(t)
	if i := strings.LastIndexByte(list, ','); i >= 0 {
		list = strings.TrimLeft(list[i+1:], " ")
	}
	_, ok := parseAddr(list)
	return ok
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
