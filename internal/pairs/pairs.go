// Package pairs reads single query parameters and cookies for rules. Where applications may read another value than the
// one that is found, it finds none and says so.
package pairs

import (
	"net/textproto"
	"net/url"
	"strings"
)

// Count is how often a name is there.
type Count uint8

const (
	None  Count = iota
	One         // and there is one reading of its value
	Doubt       // more than one, or applications may read it differently
)

// Query finds a parameter of a URL's raw query. There is doubt where the name is repeated; where its value has a malformed
// escape or a semicolon, which only some applications take for a separator; where it stands behind such a semicolon; and
// where another name is malformed or is taken for it by some: with spaces around it, or brackets behind it.
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
	if key != name {
		rest, longer := strings.CutPrefix(key, name)
		return "", false, strings.TrimSpace(key) != name && !(longer && rest[0] == '[')
	}
	value, err = url.QueryUnescape(value)
	return value, true, err == nil
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// Cookie finds a cookie in the lines of a Cookie header, and reads its value as net/http does. There is doubt where the name
// is repeated or spelt with escapes, and where net/http drops the cookie because of its value.
func Cookie(lines []string, name string) (value string, n Count) {
	for _, line := range lines {
		for line != "" {
			var part string
			part, line, _ = strings.Cut(line, ";")
			key, text, _ := strings.Cut(textproto.TrimString(part), "=")
			if key = textproto.TrimString(key); key != name {
				if strings.IndexByte(key, '%') >= 0 {
					if plain, err := url.QueryUnescape(key); err == nil && plain == name {
						return "", Doubt
					}
				}
				continue
			}
			if len(text) > 1 && text[0] == '"' && text[len(text)-1] == '"' {
				text = text[1 : len(text)-1]
			}
			if n == One || strings.ContainsFunc(text, isNoCookie) {
				return "", Doubt
			}
			value, n = text, One
		}
	}
	return value, n
}

func isNoCookie(r rune) bool { return r < ' ' || r >= 0x7f || r == '"' || r == '\\' }
