package checkapi

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/suggest"
)

// reader is a strict pull parser for JSON (RFC 8259). It does not copy: strings point into the body, or into text if they
// contain escapes, and are valid as long as these are.
type reader struct {
	b    []byte
	at   int
	text []byte // unescaped strings, concatenated
}

// fault is an error in a body.
type fault struct {
	path string // such as checks[2].attributes.ip
	msg  string
}

func (f *fault) Error() string {
	if f.path == "" {
		return f.msg
	}
	return f.path + ": " + f.msg
}

func faultf(format string, args ...any) *fault { return &fault{msg: fmt.Sprintf(format, args...)} }

// in prepends a field to the path of an error. It returns nil for nil.
func (f *fault) in(name string) *fault {
	if f == nil {
		return nil
	}
	switch {
	case f.path == "":
		f.path = name
	case f.path[0] == '[':
		f.path = name + f.path
	default:
		f.path = name + "." + f.path
	}
	return f
}

// inElement prepends the index of a list element to the path of an error. It returns nil for nil.
func (f *fault) inElement(i int) *fault {
	if f == nil {
		return nil
	}
	return f.in("[" + strconv.Itoa(i) + "]")
}

// begin starts parsing a body. Strings may contain bytes that are not UTF-8, because callers copy headers of clients into
// them. If such a check failed, callers that allow requests on errors would not limit them.
func (r *reader) begin(body []byte) { r.b, r.at, r.text = body, 0, r.text[:0] }

// peek skips white space and returns the next byte, or 0 at the end.
func (r *reader) peek() byte {
	for r.at < len(r.b) {
		switch c := r.b[r.at]; c {
		case ' ', '\t', '\n', '\r':
			r.at++
		default:
			return c
		}
	}
	return 0
}

// end returns an error unless the body ends here.
func (r *reader) end() *fault {
	if r.peek() != 0 || r.at < len(r.b) {
		return faultf("unexpected data after the object at byte %d: send one JSON object", r.at)
	}
	return nil
}

// wrong returns the error for a value that is not the wanted one.
func (r *reader) wrong(want string) *fault {
	found := "something that is not JSON"
	switch c := r.peek(); {
	case r.at >= len(r.b):
		return faultf("the body ends at byte %d: missing %s", r.at, want)
	case c == '{':
		found = "an object"
	case c == '[':
		found = "a list"
	case c == '"':
		found = "a string"
	case c == '-' || c >= '0' && c <= '9':
		found = "a number"
	case strings.HasPrefix(string(r.b[r.at:min(len(r.b), r.at+5)]), "null"):
		return faultf("null is not allowed: write %s, or leave it out", want)
	case c == 't' || c == 'f':
		found = "true or false"
	}
	return faultf("found %s at byte %d: write %s", found, r.at, want)
}

// open reads the opening bracket of an object or a list.
func (r *reader) open(bracket byte, want string) *fault {
	if r.peek() != bracket {
		return r.wrong(want)
	}
	r.at++
	return nil
}

// more reports whether another element follows in an object or list, after read elements.
func (r *reader) more(closing byte, read int) (bool, *fault) {
	switch c := r.peek(); {
	case c == closing:
		r.at++
		return false, nil
	case read == 0:
		return true, nil
	case c == ',':
		r.at++
		if r.peek() == closing {
			return false, faultf("trailing comma before byte %d: remove it", r.at)
		}
		return true, nil
	}
	return false, r.wrong("a comma or " + string(rune(closing)))
}

// name reads the name of a field and the colon after it.
func (r *reader) name() (string, *fault) {
	name, f := r.string("the name of a field, in double quotes")
	if f != nil {
		return "", f
	}
	if r.peek() != ':' {
		return "", r.wrong("a colon after \"" + shown(name) + "\"")
	}
	r.at++
	return name, nil
}

// field reads the name of a field and returns its index in names. Duplicate and unknown fields are errors.
func (r *reader) field(names []string, seen *uint32) (int, *fault) {
	name, f := r.name()
	if f != nil {
		return 0, f
	}
	for i, known := range names {
		if name != known {
			continue
		}
		if *seen&(1<<i) != 0 {
			return 0, faultf("given twice: remove one").in(known)
		}
		*seen |= 1 << i
		return i, nil
	}
	known := strings.Join(names, ", ")
	if best := suggest.ClosestOrLonger(name, names); best != "" {
		return 0, faultf("unknown field %q: did you mean %q? The fields are %s", shown(name), best, known)
	}
	return 0, faultf("unknown field %q: the fields are %s", shown(name), known)
}

// object reads an object. It calls each for every field, with its index in names and the bit set of the fields so far; each
// reads the value and adds the field to the path of errors. object returns the bit set of all fields.
func (r *reader) object(want string, names []string, each func(i int, seen uint32) *fault) (seen uint32, f *fault) {
	if f := r.open('{', want); f != nil {
		return 0, f
	}
	for read := 0; ; read++ {
		more, f := r.more('}', read)
		if f != nil || !more {
			return seen, f
		}
		i, f := r.field(names, &seen)
		if f == nil {
			f = each(i, seen)
		}
		if f != nil {
			return seen, f
		}
	}
}

// list reads a list. It calls each for every element, with its index; each reads the element and adds the index to the path of
// errors. empty is the error for an empty list.
func (r *reader) list(want, empty string, each func(read int) *fault) *fault {
	if f := r.open('[', want); f != nil {
		return f
	}
	for read := 0; ; read++ {
		more, f := r.more(']', read)
		switch {
		case f != nil:
			return f
		case !more && read == 0:
			return &fault{msg: empty}
		case !more:
			return nil
		}
		if f := each(read); f != nil {
			return f
		}
	}
}

// maxShown is the maximum number of bytes of a body in an error.
const maxShown = 40

func shown(s string) string {
	if len(s) <= maxShown {
		return s
	}
	cut := maxShown
	for cut > maxShown-utf8.UTFMax && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

// bool reads true or false.
func (r *reader) bool() (bool, *fault) {
	c := r.peek()
	rest := r.b[r.at:]
	switch {
	case c == 't' && len(rest) >= 4 && string(rest[:4]) == "true":
		r.at += 4
		return true, nil
	case c == 'f' && len(rest) >= 5 && string(rest[:5]) == "false":
		r.at += 5
		return false, nil
	}
	return false, r.wrong("true or false")
}

// int reads an integer from min to max.
func (r *reader) int(min, max int64) (int64, *fault) {
	want := func() string {
		return "a whole number from " + bound(min) + " to " + bound(max)
	}
	if c := r.peek(); (c < '0' || c > '9') && c != '-' {
		return 0, r.wrong(want())
	}
	from := r.at
	for r.at < len(r.b) && strings.IndexByte("0123456789+-.eE", r.b[r.at]) >= 0 {
		r.at++
	}
	text := view(r.b[from:r.at])
	n, err := strconv.ParseInt(text, 10, 64)
	digits := strings.TrimPrefix(text, "-")
	if err != nil || n < min || n > max || len(digits) > 1 && digits[0] == '0' {
		return 0, faultf("%s is not %s", shown(text), want())
	}
	return n, nil
}

// bound formats the bound of a number: 2^50 is readable, its digits are not.
func bound(n int64) string {
	switch n {
	case sluice.MaxCost:
		return "2^50"
	case -sluice.MaxCost:
		return "-2^50"
	}
	return strconv.FormatInt(n, 10)
}

// string reads a string. want describes it in errors.
func (r *reader) string(want string) (string, *fault) {
	if r.peek() != '"' {
		return "", r.wrong(want)
	}
	r.at++
	from := r.at
	for ; r.at < len(r.b); r.at++ {
		switch c := r.b[r.at]; {
		case c == '"':
			r.at++
			return view(r.b[from : r.at-1]), nil
		case c == '\\':
			return r.escaped(from)
		case c < ' ':
			return "", faultf("control character in a string at byte %d: write it as an escape, such as \\n", r.at)
		}
	}
	return "", faultf("the body ends within a string")
}

// escaped reads the rest of a string from its first escape. The part before it, from the given index, was read.
func (r *reader) escaped(from int) (string, *fault) {
	start := len(r.text)
	r.text = append(r.text, r.b[from:r.at]...)
	for r.at < len(r.b) {
		c := r.b[r.at]
		r.at++
		switch {
		case c == '"':
			return view(r.text[start:]), nil
		case c < ' ':
			return "", faultf("control character in a string at byte %d: write it as an escape, such as \\n", r.at-1)
		case c != '\\':
			r.text = append(r.text, c)
		default:
			if f := r.escape(); f != nil {
				return "", f
			}
		}
	}
	return "", faultf("the body ends within a string")
}

// escape reads the part of an escape after the backslash.
func (r *reader) escape() *fault {
	at := r.at - 1
	if r.at < len(r.b) {
		c := r.b[r.at]
		r.at++
		if c == 'u' {
			return r.unicode(at)
		}
		if i := strings.IndexByte(`"\/bfnrt`, c); i >= 0 {
			r.text = append(r.text, "\"\\/\b\f\n\r\t"[i])
			return nil
		}
	}
	return faultf("invalid escape in a string at byte %d", at)
}

// unicode reads the digits of \u0061, and the second escape of a surrogate pair. An unpaired surrogate, which JavaScript and
// Python write for strings that contain one, becomes the three bytes of its code point. They are not valid UTF-8, so that
// no other string becomes the same.
func (r *reader) unicode(at int) *fault {
	c, ok := r.hex4()
	if !ok {
		return faultf("invalid \\u escape in a string at byte %d", at)
	}
	if !utf16.IsSurrogate(c) {
		r.text = utf8.AppendRune(r.text, c)
		return nil
	}
	if r.at+1 < len(r.b) && r.b[r.at] == '\\' && r.b[r.at+1] == 'u' {
		before := r.at
		r.at += 2
		if second, ok := r.hex4(); ok {
			if pair := utf16.DecodeRune(c, second); pair != utf8.RuneError {
				r.text = utf8.AppendRune(r.text, pair)
				return nil
			}
		}
		r.at = before // the second escape is not part of a pair
	}
	r.text = append(r.text, 0xe0|byte(c>>12), 0x80|byte(c>>6)&0x3f, 0x80|byte(c)&0x3f)
	return nil
}

func (r *reader) hex4() (c rune, ok bool) {
	if len(r.b)-r.at < 4 {
		return 0, false
	}
	n, err := strconv.ParseUint(view(r.b[r.at:r.at+4]), 16, 16)
	r.at += 4
	return rune(n), err == nil
}

// view returns b as a string without copying. It is valid as long as b is not modified.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
