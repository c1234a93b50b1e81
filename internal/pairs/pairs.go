// Package pairs reads single query parameters and cookies for rules. If applications may read a value differently, it
// returns [Doubt] and no value.
package pairs

import (
	"net/textproto"
	"net/url"
	"strings"
	"unicode"
)

// Count is the number of occurrences of a name.
type Count uint8

const (
	None  Count = iota
	One         // its value can be read in only one way
	Doubt       // several, or applications may read it differently
)

// Query finds a parameter in a URL's raw query. It compares names without case, because some frameworks do. It returns
// [Doubt] if the name occurs twice; if its value has a malformed escape or a semicolon, which only some applications
// read as a separator; if the name follows such a semicolon; and if another name is malformed or some applications read
// it as this one: see [Confused].
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

// parameter reads one pair of a query. ok is false if only some applications read it as the parameter called name.
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

// Confused reports whether some applications read the name key as name, although the two differ in more than case. Such
// keys, escaped or not, have
//
//   - spaces around the name, in any encoding, or other bytes that are not visible ASCII;
//   - brackets ("role[]") or NUL after it;
//   - characters that PHP folds: "user.id", "user id" and "user[id" are "user_id".
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

// folded returns a byte of a name as PHP folds it, without case.
func folded(c byte) byte {
	switch {
	case c == '.' || c == ' ' || c == '[':
		return '_'
	case 'A' <= c && c <= 'Z':
		return c | 0x20
	}
	return c
}

// Cookie finds a cookie in the lines of a Cookie header and reads its value like [CookieValue]. It compares names
// without case, because some frameworks do. It returns [Doubt] if
//
//   - the name occurs twice;
//   - some applications read another name as this one, see [Confused];
//   - the name occurs in the value of another cookie, after a space or a comma, which some read as separators;
//   - the value has a malformed escape, or a character that RFC 6265 does not allow. Spaces and commas in quotes are
//     accepted, because Go servers send them.
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

// CookieValue returns a cookie's value in a form that does not depend on how servers read it. Some drop spaces and
// quotes around it, some decode escapes, and some of those decode + to a space. So escapes are decoded, a space becomes
// +, and quotes, white space, control characters and + at the ends are dropped. ok is false if an escape is malformed
// or encodes NUL.
func CookieValue(sent string) (value string, ok bool) {
	bare, _ := unquoted(sent)
	value, err := url.PathUnescape(bare)
	ok = err == nil && strings.IndexByte(value, 0) < 0
	value = strings.TrimFunc(value, func(r rune) bool { return r == '"' || r == '+' || isControl(r) || unicode.IsSpace(r) })
	return strings.ReplaceAll(value, " ", "+"), ok
}

// unquoted drops spaces around a value, then quotes.
func unquoted(text string) (bare string, quoted bool) {
	text = strings.Trim(text, " \t")
	if len(text) > 1 && text[0] == '"' && text[len(text)-1] == '"' {
		return text[1 : len(text)-1], true
	}
	return text, false
}

// isWithin reports whether a cookie called name occurs in the value of another, after a space or a comma.
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
