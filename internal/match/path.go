package match

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/sluiceproject/sluice/internal/bounds"
)

// MaxPathBytes is how many bytes a path may have for [CanonicalPath], both as it was sent and as [EscapePath] writes it.
const MaxPathBytes = 8 << 10

// maxSegments is how many segments a path may be sent with. Dots count and empty segments do not.
const maxSegments = 256

// ErrAmbiguousPath is wrapped by the error of a path that two servers may read differently, or that none should. Whichever
// reading was matched here, the application could have the other, so such a request is refused.
var ErrAmbiguousPath = errors.New("rules: the path is ambiguous or malformed")

// SentPath returns the path of a URL in the spelling in which it was sent, for [CanonicalPath]. [url.URL.EscapedPath] spells a
// path anew that holds a byte which should have been escaped: of "/a%2fb|" it makes "/a/b%7C", and the escaped slash is gone.
// If Path was changed since the URL was parsed, its own spelling is returned. A number sign, with which no path is sent but by
// mistake, is escaped.
func SentPath(u *url.URL) string {
	if u.RawPath != "" {
		if path, err := url.PathUnescape(u.RawPath); err == nil && path == u.Path {
			return strings.ReplaceAll(u.RawPath, "#", "%23")
		}
	}
	return u.EscapedPath()
}

// CanonicalPath gives all spellings of a path one form, so that no spelling evades a rule that another one matches.
// What cannot be given one without guessing how the application would read it is refused with [ErrAmbiguousPath].
//
// The path is given as it was sent: percent-escaped, beginning with a slash, without the query. The result is the
// decoded path: "/a%20b" gives "/a b", and "/100%25" gives "/100%". So it is not to be given to CanonicalPath again,
// nor to be sent, but as [EscapePath] writes it. CanonicalPath(EscapePath(p)) is p for every p that came out of here.
// Who forwards a request has to forward that, and not what was sent: then the path that was limited is the path that
// is served, whatever the application thinks of dots and slashes.
//
//   - Escapes are decoded once. Refused are malformed ones; escaped slashes, backslashes and semicolons, which separate
//     for some servers and are data for others; and an escaped percent sign that leaves an escape behind, because some
//     decode twice.
//   - Then repeated slashes become one, parameters (";v=1") are cut from their segments, "." and ".." are resolved, and
//     a slash at the end is dropped. Slashes come first: "/a//../b" is "/b". Refused are ".." above the root and dots
//     with parameters ("/..;/"), which some servers resolve and others do not.
//   - Text is UTF-8 in normalization form C. Refused are characters that become a separator, a dot or an escape where
//     compatibility forms are folded (fullwidth slashes, dot leaders, the ellipsis), and those that cannot be seen.
//   - Control characters and backslashes are refused in any spelling, and so is what is longer than [MaxPathBytes] or has
//     more than 256 segments.
//   - Refused are names of nothing but dots and spaces ("/..."), those that name a stream ("/posts::$DATA"), and those that
//     begin or end with a space other than the common one.
//
// Case is kept, and so are dots and spaces at the ends of names, which some file systems and frameworks ignore, and variation
// selectors, which databases ignore. Rules and routes ignore them: to those "/posts." and "/posts%20" are "/posts".
func CanonicalPath(escaped string) (string, error) {
	switch {
	case !strings.HasPrefix(escaped, "/"):
		return "", refuse("it does not begin with a slash")
	case len(escaped) > MaxPathBytes:
		bounds.Path.Reached()
		return "", refuse("it is longer than 8 KiB")
	case isCanonical(escaped):
		return escaped, nil
	}
	var room [512]byte
	path, err := appendUnescaped(room[:0], escaped)
	if err != nil {
		return "", err
	}
	if hasEscape(path) {
		return "", refuse("decoded once, it still holds an escape")
	}
	if !isASCII(path) {
		text, err := composed(string(path)) // a copy, because package norm would move the room to the heap
		if err != nil {
			return "", err
		}
		path = append(path[:0], text...)
	}
	if path, err = resolved(path); err != nil {
		return "", err
	}
	// Raw bytes triple when they are escaped, and a few characters grow when they are composed.
	if escapedLen(path) > MaxPathBytes {
		bounds.Path.Reached()
		return "", refuse("it is longer than 8 KiB when it is escaped")
	}
	return string(path), nil
}

// EscapePath writes a path that came from [CanonicalPath] the way it is sent. The characters that RFC 3986 allows in a
// segment stay as they are, but for the semicolon. As the RawPath of a URL whose Path is the canonical path, net/http
// sends it unchanged.
func EscapePath(canonical string) string {
	n := escapedLen(canonical)
	if n == len(canonical) {
		return canonical
	}
	const digits = "0123456789ABCDEF"
	b := make([]byte, 0, n)
	for i := 0; i < len(canonical); i++ {
		if c := canonical[i]; sentRaw[c] {
			b = append(b, c)
		} else {
			b = append(b, '%', digits[c>>4], digits[c&15])
		}
	}
	return string(b)
}

func refuse(why string) error { return fmt.Errorf("%w: %s", ErrAmbiguousPath, why) }

// sentRaw are the bytes that EscapePath leaves alone: what a segment may hold, and the slash. Without the semicolon,
// since no canonical path has one.
var sentRaw = func() (raw [256]bool) {
	for c := '0'; c <= 'z'; c++ {
		raw[c] = c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a'
	}
	for _, c := range "-._~!$&'()*+,=:@/" {
		raw[c] = true
	}
	return raw
}()

func escapedLen[T string | []byte](path T) int {
	n := len(path)
	for i := 0; i < len(path); i++ {
		if !sentRaw[path[i]] {
			n += 2
		}
	}
	return n
}

// isCanonical reports whether a path that begins with a slash has nothing to decode, to drop or to refuse. Nearly all
// are like that, and they should cost one look at each byte.
func isCanonical(path string) bool {
	if path == "/" {
		return true
	}
	segments, start := 0, 1
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			if c := path[i]; !sentRaw[c] || c == '$' && path[i-1] == ':' {
				return false
			}
			continue
		}
		if i == start || path[i-1] == '.' && isDots(path[start:i]) {
			return false
		}
		segments, start = segments+1, i+1
	}
	return segments <= maxSegments
}

// appendUnescaped decodes, and refuses the bytes that have no place in a path. A semicolon in what it appends was not
// escaped: it begins parameters.
func appendUnescaped(b []byte, escaped string) ([]byte, error) {
	for i := 0; i < len(escaped); i++ {
		c := escaped[i]
		switch c {
		case '%':
			if !hexPairAt(escaped, i+1) {
				return nil, refuse("a percent sign is not followed by two hexadecimal digits; write %25 for the sign itself")
			}
			c = unhex(escaped[i+1])<<4 | unhex(escaped[i+2])
			i += 2
			if c == '/' || c == ';' {
				return nil, refuse("it has an escaped slash or semicolon, which only some servers take for a separator")
			}
		case '?', '#':
			return nil, refuse("it has a query or a fragment, which are no part of the path")
		}
		if c == '\\' {
			return nil, refuse("it has a backslash, which some servers take for a slash")
		}
		if c < ' ' || c == 0x7f {
			return nil, refuse("it has a control character")
		}
		b = append(b, c)
	}
	return b, nil
}

func hexPairAt[T string | []byte](s T, i int) bool {
	return i+1 < len(s) && isHex(s[i]) && isHex(s[i+1])
}

func isHex(c byte) bool { return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f' }

// unhex is the value of a digit that isHex accepted.
func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return (c | 0x20) - 'a' + 10
}

// hasEscape reports whether somebody who decodes again would find something: %61, or %u0061 as old servers write it.
func hasEscape[T string | []byte](path T) bool {
	for i := 0; i < len(path); i++ {
		if path[i] != '%' {
			continue
		}
		if hexPairAt(path, i+1) {
			return true
		}
		if i+1 < len(path) && path[i+1]|0x20 == 'u' && hexPairAt(path, i+2) && hexPairAt(path, i+4) {
			return true
		}
	}
	return false
}

func isASCII(path []byte) bool {
	for _, c := range path {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// composed gives a path in normalization form C, or refuses it. What it refuses is looked for in the text as it came,
// composed, and folded, since the application may work with any of them.
func composed(path string) (string, error) {
	if !utf8.ValidString(path) {
		return "", refuse("it is not UTF-8")
	}
	c, folded := norm.NFC.String(path), norm.NFKC.String(path)
	for _, form := range []string{path, c, folded} {
		if strings.ContainsFunc(form, isUnseen) {
			return "", refuse("it has a character that cannot be seen, or too many accents on one letter")
		}
		// Folding makes separators but never takes any away, so it is enough to compare how many there are. The Greek
		// question mark becomes a semicolon even in form C.
		if countSeparators(form) != countSeparators(path) || hasEscape(form) {
			return "", refuse("it has a character that some servers fold into a separator, a dot or an escape")
		}
	}
	return c, nil
}

// isUnseen reports whether two texts that differ in this character only look the same: controls, format characters, separators
// of lines, and what else Unicode calls Default_Ignorable_Code_Point, without variation selectors. Those are sent with most
// emoji, and [LoosePath] drops them. The grapheme joiner is also what package norm puts between accents when more than 30
// follow each other.
func isUnseen(r rune) bool {
	return r >= utf8.RuneSelf &&
		unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Other_Default_Ignorable_Code_Point)
}

// countSeparators counts what has a meaning in a path or in a URL. Controls are among it: none is in the text that
// came.
func countSeparators(path string) (n int) {
	for _, c := range []byte(path) {
		if c < ' ' || c == 0x7f || strings.IndexByte(`/\.%;?#`, c) >= 0 {
			n++
		}
	}
	return n
}

// resolved drops empty segments, dots, parameters and the slash at the end. It writes over the path while it reads it,
// never beyond what was read.
func resolved(path []byte) ([]byte, error) {
	out, segments := path[:0], 0
	for segment, rest, more := []byte(nil), path[1:], true; more; {
		segment, rest, more = bytes.Cut(rest, []byte{'/'}) // SplitSeq would move the path to the heap
		name, _, parameters := bytes.Cut(segment, []byte{';'})
		if len(name) > 0 {
			segments++
		}
		dots := string(name) == "." || string(name) == ".."
		switch {
		case segments > maxSegments:
			bounds.Path.Reached()
			return nil, refuse("it has more than 256 segments")
		case dots && parameters:
			return nil, refuse("it has dots with parameters, which only some servers resolve")
		case string(name) == ".." && len(out) == 0:
			return nil, refuse("it leads above the root")
		case string(name) == "..":
			out = out[:bytes.LastIndexByte(out, '/')]
		case dots || len(name) == 0:
		case isDoubtful(name):
			return nil, refuse("a name in it is made of dots and spaces, has an unusual space at an end, or has :$ in it: some servers take it for another name")
		default:
			out = append(append(out, '/'), name...)
		}
	}
	if len(out) == 0 {
		out = append(out, '/')
	}
	return out, nil
}

// isDots reports whether a name has nothing but dots.
func isDots(name string) bool { return strings.Trim(name, ".") == "" }

// isDoubtful reports whether servers that ignore dots and spaces at the ends of a name, or read a:$b as a stream of a as
// Windows does, may take it for another.
func isDoubtful(name []byte) bool {
	if bytes.ContainsFunc(name, isSelector) {
		name = bytes.Map(withoutSelectors, name)
	}
	name = bytes.TrimLeft(bytes.TrimRight(name, ". "), " ")
	first, _ := utf8.DecodeRune(name)
	last, _ := utf8.DecodeLastRune(name)
	return len(name) == 0 || unicode.IsSpace(first) || unicode.IsSpace(last) || bytes.Contains(name, []byte(":$"))
}

// LoosePath returns a canonical path as rules and routes match it: without variation selectors, dots and spaces at the end of
// names, and spaces at their beginning. Windows, and frameworks that trim, serve "/admin" for "/admin.", and
// databases ignore the selectors, so that a rule for the one has to hold for the other. Nearly all paths are returned as they
// are, without an allocation.
func LoosePath(canonical string) string {
	if !hasLooseEnd(canonical) {
		return canonical
	}
	b := make([]byte, 0, len(canonical))
	for name := range strings.SplitSeq(canonical[1:], "/") {
		b = append(append(b, '/'), trimmedName(name)...)
	}
	return string(b)
}

func trimmedName(name string) string {
	return strings.TrimLeft(strings.TrimRight(strings.Map(withoutSelectors, name), ". "), " ")
}

func isSelector(r rune) bool { return r >= utf8.RuneSelf && unicode.Is(unicode.Variation_Selector, r) }

// withoutSelectors drops variation selectors, for [strings.Map].
func withoutSelectors(r rune) rune {
	if isSelector(r) {
		return -1
	}
	return r
}

// hasLooseEnd reports whether LoosePath changes a path.
func hasLooseEnd(path string) bool {
	for i := 1; i < len(path); i++ {
		switch c := path[i]; {
		case c >= utf8.RuneSelf:
			if r, _ := utf8.DecodeRuneInString(path[i:]); isSelector(r) {
				return true
			}
		case c == '.' || c == ' ':
			if i+1 == len(path) || path[i+1] == '/' || c == ' ' && path[i-1] == '/' {
				return true
			}
		}
	}
	return false
}
