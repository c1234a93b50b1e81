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

// MaxPathBytes is the maximum length of a path for [CanonicalPath], both as sent and as written by [EscapePath].
const MaxPathBytes = 8 << 10

// maxSegments is the maximum number of segments of a path as sent. Dots count, empty segments do not.
const maxSegments = 256

// ErrAmbiguousPath is wrapped by the error of a path that is malformed, or that two servers may read differently. Such
// a request is rejected, because the application could read the path differently from the one that was matched.
var ErrAmbiguousPath = errors.New("rules: the path is ambiguous or malformed")

// SentPath returns the path of a URL as it was sent, for [CanonicalPath]. [url.URL.EscapedPath] escapes a path again if
// it contains a byte that should have been escaped: it turns "/a%2fb|" into "/a/b%7C" and loses the escaped slash. If
// Path was changed after the URL was parsed, SentPath returns the escaped Path. It escapes a number sign, which occurs
// in a path only by mistake.
func SentPath(u *url.URL) string {
	if u.RawPath != "" {
		if path, err := url.PathUnescape(u.RawPath); err == nil && path == u.Path {
			return strings.ReplaceAll(u.RawPath, "#", "%23")
		}
	}
	return u.EscapedPath()
}

// CanonicalPath returns the one form that all spellings of a path share, so that no spelling evades a rule that matches
// another. It returns [ErrAmbiguousPath] for a path that applications may read in different ways.
//
// escaped is the path as sent: percent-escaped, with a leading slash, without the query. The result is the decoded path:
// "/a%20b" gives "/a b", and "/100%25" gives "/100%". It must not be passed to CanonicalPath again, and must be escaped
// with [EscapePath] before it is sent: CanonicalPath(EscapePath(p)) is p for every result p. A proxy must forward this path
// and not the one it received. Then the limited path is the served path, however the application reads dots and slashes.
//
//   - Escapes are decoded once. Rejected: malformed escapes; escaped slashes, backslashes and semicolons, which are
//     separators to some servers and data to others; an escaped percent sign that leaves an escape, because some servers
//     decode twice.
//   - Then repeated slashes become one, parameters (";v=1") are cut from their segments, "." and ".." are resolved, and
//     the trailing slash is dropped. Slashes come first: "/a//../b" is "/b". Rejected: ".." above the root, and dots with
//     parameters ("/..;/"), which only some servers resolve.
//   - Text is UTF-8 in normalization form C. Rejected: characters that become a separator, a dot or an escape when
//     compatibility forms are folded (fullwidth slashes, dot leaders, the ellipsis), and invisible characters.
//   - Rejected in any spelling: control characters and backslashes, paths longer than [MaxPathBytes], and paths with more
//     than 256 segments.
//   - Rejected: names of only dots and spaces ("/..."), names of a stream ("/posts::$DATA"), and names that begin or end
//     with a space other than U+0020.
//
// The result keeps case, dots and spaces at the ends of names, which some file systems and frameworks ignore, and variation
// selectors, which databases ignore. Rules and routes ignore these: for them "/posts." and "/posts%20" are "/posts".
func CanonicalPath(escaped string) (string, error) {
	switch {
	case !strings.HasPrefix(escaped, "/"):
		return "", reject("no leading slash")
	case len(escaped) > MaxPathBytes:
		bounds.Path.Reached()
		return "", reject("longer than 8 KiB")
	case isCanonical(escaped):
		return escaped, nil
	}
	var room [512]byte
	path, err := appendUnescaped(room[:0], escaped)
	if err != nil {
		return "", err
	}
	if hasEscape(path) {
		return "", reject("contains an escape after decoding")
	}
	if !isASCII(path) {
		text, err := composed(string(path)) // a copy, because package norm would move the array to the heap
		if err != nil {
			return "", err
		}
		path = append(path[:0], text...)
	}
	if path, err = resolved(path); err != nil {
		return "", err
	}
	// Raw bytes triple when escaped, and a few characters grow when composed.
	if escapedLen(path) > MaxPathBytes {
		bounds.Path.Reached()
		return "", reject("longer than 8 KiB when escaped")
	}
	return string(path), nil
}

// EscapePath escapes a path of [CanonicalPath] for sending. The characters that RFC 3986 allows in a segment stay as
// they are, except for the semicolon. As the RawPath of a URL whose Path is the canonical path, net/http sends it
// unchanged.
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

func reject(why string) error { return fmt.Errorf("%w: %s", ErrAmbiguousPath, why) }

// sentRaw lists the bytes that EscapePath does not escape: those allowed in a segment, and the slash. The semicolon is
// missing because no canonical path contains one.
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

// isCanonical reports whether a path that begins with a slash has nothing to decode, drop or reject. Nearly all paths
// are canonical, so that they cost one look at each byte.
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

// appendUnescaped decodes escapes and rejects bytes that a path must not contain. A semicolon in the result was not
// escaped: it begins parameters.
func appendUnescaped(b []byte, escaped string) ([]byte, error) {
	for i := 0; i < len(escaped); i++ {
		c := escaped[i]
		switch c {
		case '%':
			if !hexPairAt(escaped, i+1) {
				return nil, reject("percent sign without two hexadecimal digits: write %25 for a percent sign")
			}
			c = unhex(escaped[i+1])<<4 | unhex(escaped[i+2])
			i += 2
			if c == '/' || c == ';' {
				return nil, reject("contains an escaped slash or semicolon, which only some servers read as a separator")
			}
		case '?', '#':
			return nil, reject("contains a query or a fragment, which are not part of the path")
		}
		if c == '\\' {
			return nil, reject("contains a backslash, which some servers read as a slash")
		}
		if c < ' ' || c == 0x7f {
			return nil, reject("contains a control character")
		}
		b = append(b, c)
	}
	return b, nil
}

func hexPairAt[T string | []byte](s T, i int) bool {
	return i+1 < len(s) && isHex(s[i]) && isHex(s[i+1])
}

func isHex(c byte) bool { return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f' }

// unhex returns the value of a digit that isHex accepts.
func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return (c | 0x20) - 'a' + 10
}

// hasEscape reports whether decoding again would change the path: %61, or %u0061 of old servers.
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

// composed returns a path in normalization form C. It rejects characters found in the original, the composed or the
// folded text, because the application may use any of them.
func composed(path string) (string, error) {
	if !utf8.ValidString(path) {
		return "", reject("not UTF-8")
	}
	c, folded := norm.NFC.String(path), norm.NFKC.String(path)
	for _, form := range []string{path, c, folded} {
		if strings.ContainsFunc(form, isUnseen) {
			return "", reject("contains an invisible character, or too many accents on one letter")
		}
		// Folding adds separators but never removes any, so comparing the counts is enough. The Greek question mark
		// becomes a semicolon even in form C.
		if countSeparators(form) != countSeparators(path) || hasEscape(form) {
			return "", reject("contains a character that some servers fold into a separator, a dot or an escape")
		}
	}
	return c, nil
}

// isUnseen reports whether r is invisible, so that two texts that differ only in it look the same: controls, format
// characters, line separators and the other characters with the Unicode property Default_Ignorable_Code_Point, except
// variation selectors. Most emoji are sent with those, and [LoosePath] drops them. The grapheme joiner is also the
// character that package norm inserts after 30 consecutive accents.
func isUnseen(r rune) bool {
	return r >= utf8.RuneSelf &&
		unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Other_Default_Ignorable_Code_Point)
}

// countSeparators counts the characters with a meaning in a path or a URL. It includes control characters, which the
// original text does not contain.
func countSeparators(path string) (n int) {
	for _, c := range []byte(path) {
		if c < ' ' || c == 0x7f || strings.IndexByte(`/\.%;?#`, c) >= 0 {
			n++
		}
	}
	return n
}

// resolved drops empty segments, dots, parameters and the trailing slash. It overwrites the path while reading it,
// never beyond the bytes already read.
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
			return nil, reject("more than 256 segments")
		case dots && parameters:
			return nil, reject("contains dots with parameters, which only some servers resolve")
		case string(name) == ".." && len(out) == 0:
			return nil, reject("leads above the root")
		case string(name) == "..":
			out = out[:bytes.LastIndexByte(out, '/')]
		case dots || len(name) == 0:
		case isDoubtful(name):
			return nil, reject("contains a name of dots and spaces, with an unusual space at an end, or with :$, which some servers read as another name")
		default:
			out = append(append(out, '/'), name...)
		}
	}
	if len(out) == 0 {
		out = append(out, '/')
	}
	return out, nil
}

// isDots reports whether a name consists of dots.
func isDots(name string) bool { return strings.Trim(name, ".") == "" }

// isDoubtful reports whether some servers may read a name as another one: servers that ignore dots and spaces at the
// ends of a name, and Windows, which reads a:$b as a stream of a.
func isDoubtful(name []byte) bool {
	if bytes.ContainsFunc(name, isSelector) {
		name = bytes.Map(withoutSelectors, name)
	}
	name = bytes.TrimLeft(bytes.TrimRight(name, ". "), " ")
	first, _ := utf8.DecodeRune(name)
	last, _ := utf8.DecodeLastRune(name)
	return len(name) == 0 || unicode.IsSpace(first) || unicode.IsSpace(last) || bytes.Contains(name, []byte(":$"))
}

// LoosePath returns a canonical path as rules and routes match it: without variation selectors, without dots and spaces
// at the end of names, and without spaces at their start. Windows and frameworks that trim serve "/admin" for
// "/admin.", and databases ignore the selectors, so that a rule for one spelling must apply to the other. Nearly all
// paths are returned unchanged, without an allocation.
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

// withoutSelectors drops variation selectors; for [strings.Map].
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
