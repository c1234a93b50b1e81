// Package pairs reads single query parameters and cookies for rules. Where applications may read another value than the
// one that is found, it returns [Doubt] and no value.
package pairs

import (
	"net/textproto"
	"net/url"
	"strings"
	"unicode"
)

// Count is how often a name occurs.
type Count uint8

const (
	None  Count = iota
	One         // and there is one reading of its value
	Doubt       // more than one, or applications may read it differently
)

// Query finds a parameter of a URL's raw query. Names are compared without case, because some frameworks do. There is doubt
// where the name is repeated; where its value has a malformed escape or a semicolon, which only some applications take for a
// separator; where it stands behind such a semicolon; and where another name is malformed or is taken for it by some: see
// [Confused].
func Query(raw, name string) (value string, n Count) {
	for raw != "" {
		var pair string
		pair, raw, _ = strings.Cut(raw, "&")
		if strings.IndexByte(pair, ';') >= 0 {
			for part := range strings.SplitSeq(pair, ";") {
				if _, isIt, ok := parameter(part, name); isIt || !ok {
					return "", Doubt
				}
			}
			continue
		}
		switch text, isIt, ok := parameter(pair, name); {
		case !ok, isIt && n == One:
			return "", Doubt
		case isIt:
			value, n = text, One
		}
	}
	return value, n
}

// parameter reads one pair of a query. It is not ok if it may be the name to some, and is not to others.
func parameter(pair, name string) (value string, isIt, ok bool) {
	key, value, _ := strings.Cut(pair, "=")
	key, err := url.QueryUnescape(key)
	if err != nil || strings.ContainsFunc(key, isControl) {
		return "", false, false
	}
	if !strings.EqualFold(key, name) {
		return "", false, !Confused(key, name)
	}
	value, err = url.QueryUnescape(value)
	return value, true, err == nil && strings.IndexByte(value, 0) < 0
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// Confused reports whether some applications take a name of a parameter or cookie for another, which it does not equal
// without case: one that has spaces around it, in any encoding, or other bytes that are not visible ASCII; one with brackets
// ("role[]") or NUL behind it; one that PHP folds into the same ("user.id", "user id" and "user[id" are "user_id" there); and
// any of them in escapes.
func Confused(key, name string) bool {
	if strings.IndexByte(key, '%') >= 0 {
		if plain, err := url.QueryUnescape(key); err == nil {
			key = plain
		}
	}
	key, _, _ = strings.Cut(key, "\x00")
	key = strings.TrimFunc(key, func(r rune) bool { return r <= ' ' || r >= 0x7f }) // a byte that is not UTF-8 is utf8.RuneError
	if len(key) > len(name) && key[len(name)] == '[' {
		key = key[:len(name)]
	}
	if len(key) != len(name) {
		return false
	}
	for i := range len(key) {
		if folded(key[i]) != folded(name[i]) {
			return false
		}
	}
	return true
}

// folded returns a byte of a name as PHP without case has it.
func folded(c byte) byte {
	switch {
	case c == '.' || c == ' ' || c == '[':
		return '_'
	case 'A' <= c && c <= 'Z':
		return c | 0x20
	}
	return c
}

// Cookie finds a cookie in the lines of a Cookie header and reads its value as [CookieValue] does. Names are compared
// without case, because some frameworks do. There is doubt where the name is repeated; where another name is taken for it by
// some, see [Confused]; where it stands in the value of another cookie, behind a space or a comma, which some take for
// separators; and where its value has a malformed escape or a character that RFC 6265 does not allow, other than spaces and
// commas in quotes, which Go's servers send.
func Cookie(lines []string, name string) (value string, n Count) {
	for _, line := range lines {
		for line != "" {
			var part string
			part, line, _ = strings.Cut(line, ";")
			key, text, _ := strings.Cut(part, "=")
			if key = textproto.TrimString(key); !strings.EqualFold(key, name) {
				if Confused(key, name) || isWithin(part, name) {
					return "", Doubt
				}
				continue
			}
			bare, quoted := unquoted(text)
			text, ok := CookieValue(bare)
			if n == One || !ok || strings.ContainsFunc(bare, isNoCookie) || !quoted && strings.ContainsAny(bare, " ,") {
				return "", Doubt
			}
			value, n = text, One
		}
	}
	return value, n
}

// CookieValue returns what servers have in common of a cookie's value. Some drop spaces and quotes around it, some decode
// escapes, and some of those decode + to a space. So escapes are decoded, a space is written +, and quotes, white space, control
// characters and + at the ends are dropped. It is not ok if an escape is malformed or is that of NUL.
func CookieValue(sent string) (value string, ok bool) {
	bare, _ := unquoted(sent)
	value, err := url.PathUnescape(bare)
	ok = err == nil && strings.IndexByte(value, 0) < 0
	value = strings.TrimFunc(value, func(r rune) bool { return r == '"' || r == '+' || isControl(r) || unicode.IsSpace(r) })
	return strings.ReplaceAll(value, " ", "+"), ok
}

// unquoted drops spaces around a value, and then quotes.
func unquoted(text string) (bare string, quoted bool) {
	text = strings.Trim(text, " \t")
	if len(text) > 1 && text[0] == '"' && text[len(text)-1] == '"' {
		return text[1 : len(text)-1], true
	}
	return text, false
}

// isWithin reports whether a cookie of the name stands in another, behind a space or a comma.
func isWithin(part, name string) bool {
	for {
		i := strings.IndexAny(part, " \t,")
		if i < 0 {
			return false
		}
		part = part[i+1:]
		if len(part) > len(name) && part[len(name)] == '=' && strings.EqualFold(part[:len(name)], name) {
			return true
		}
	}
}

func isNoCookie(r rune) bool { return r < ' ' || r >= 0x7f || r == '"' || r == '\\' }
