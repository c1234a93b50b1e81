package clientip

import "strings"

const (
	// MaxEntries is the maximum number of entries of a forwarding header that are read, from right to left.
	MaxEntries = 64
	maxEntry   = 1024 // maximum length of an entry in bytes
)

// entries iterates over the entries of a forwarding header from right to left, across all its lines. Lines are never joined,
// because an open quote in one line must not swallow the next. Each line is also parsed from right to left, so that the entry
// that a trusted proxy appended is parsed correctly, whatever the client sent before it.
type entries struct {
	lines  []string
	quotes bool // RFC 7239: commas may be in quoted strings
	left   int  // number of entries that may still be read, empty ones included

	rest string // unread part of the current line
	cut  bool   // there are more than MaxEntries entries
}

// next returns the address of the next entry, or the zero host if the entry is no address. Empty entries are skipped, as
// RFC 9110 requires for lists. more is false at the end of the header.
func (e *entries) next() (h host, more bool) {
	for e.left > 0 {
		if e.rest == "" {
			if len(e.lines) == 0 {
				return host{}, false
			}
			e.rest = e.lines[len(e.lines)-1]
			e.lines = e.lines[:len(e.lines)-1]
		}
		e.left--
		var entry string
		e.rest, entry = cutLast(e.rest, e.quotes)
		entry = strings.Trim(entry, " \t")
		if entry == "" {
			continue
		}
		if e.quotes {
			h, _ = parseForwarded(entry)
			return h, true
		}
		if n := len(entry); n >= 2 && entry[0] == '"' && entry[n-1] == '"' {
			entry = entry[1 : n-1]
		}
		h, _ = parseHost(entry)
		return h, true
	}
	e.cut = e.rest != "" || len(e.lines) > 0
	return host{}, false
}

// cutLast splits a line at its last comma. If there is no comma within maxEntry bytes, the whole line is one entry, which is
// then too long to be an address.
func cutLast(s string, quotes bool) (before, last string) {
	inside := false
	for i := len(s) - 1; i >= max(0, len(s)-maxEntry); i-- {
		switch {
		case s[i] == ',' && !inside:
			return s[:i], s[i+1:]
		case s[i] == '"' && quotes && (!inside || !escaped(s[:i])):
			inside = !inside
		}
	}
	return "", s
}

// escaped reports whether s ends with an odd number of backslashes, which escape the next character of a quoted string.
func escaped(s string) bool {
	n := len(s)
	for n > 0 && s[n-1] == '\\' {
		n--
	}
	return (len(s)-n)%2 == 1
}

// parseForwarded returns the address of an element of RFC 7239, such as for="[2001:db8::1]:4711";proto=https. It reports
// false unless the element has exactly one valid address.
func parseForwarded(element string) (host, bool) {
	if len(element) > maxEntry {
		return host{}, false
	}
	node, found := "", false
	for element != "" {
		if element[0] == ';' || element[0] == ' ' || element[0] == '\t' {
			element = element[1:]
			continue
		}
		name, rest, ok := strings.Cut(element, "=")
		if !ok {
			return host{}, false
		}
		var val string
		val, element, ok = cutValue(rest)
		if !ok {
			return host{}, false
		}
		if strings.EqualFold(name, "for") {
			if found {
				return host{}, false
			}
			node, found = val, true
		}
	}
	return parseHost(node)
}

// cutValue parses a token or quoted string and the semicolon that ends it.
func cutValue(s string) (val, rest string, ok bool) {
	if !strings.HasPrefix(s, `"`) {
		val, rest, _ = strings.Cut(s, ";")
		return strings.TrimRight(val, " \t"), rest, !strings.Contains(val, `"`)
	}
	s = s[1:]
	var plain []byte
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			if i++; i == len(s) {
				return "", "", false
			}
			plain = append(plain, s[i])
		case '"':
			rest = strings.TrimLeft(s[i+1:], " \t")
			if rest != "" && rest[0] != ';' {
				return "", "", false
			}
			return string(plain), rest, true
		default:
			plain = append(plain, s[i])
		}
	}
	return "", "", false
}
