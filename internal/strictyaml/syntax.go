package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// syntaxFault makes a fault of the library's error. The library says in its own words what it expected, and often the
// line where the surrounding value begins instead of the one at fault.
//
// To find the line it parses the file again, and adds the bytes to parsed.
func syntaxFault(data []byte, err error, parsed *int) Fault {
	msg := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 1
	if m := linePrefix.FindStringSubmatch(msg); m != nil {
		msg = msg[len(m[0]):]
		line, _ = strconv.Atoi(m[1])
	}
	if m := unknownAnchor.FindStringSubmatch(msg); m != nil {
		return anchorFault(data, m[1])
	}
	if found := faultyLine(data, parsed); found > 0 {
		line = found
	}
	s := syntax{problem: msg, text: lineText(data, line)}
	if line > 1 {
		s.above = lineText(data, line-1)
	}
	s.at = len(s.text) - len(strings.TrimLeft(s.text, " \t"))
	advice := s.advice()
	if strings.HasPrefix(msg, "exceeded max depth") {
		return Fault{
			Line: line, Column: 1, Reason: TooLarge,
			Msg: fmt.Sprintf("values are nested deeper than %d levels: nest less", MaxDepth),
		}
	}
	return Fault{Line: line, Column: columnOf(s.text, s.at), Reason: UnsupportedYAML, Msg: advice}
}

var (
	linePrefix    = regexp.MustCompile(`^line (\d+): `)
	unknownAnchor = regexp.MustCompile(`^unknown anchor '([^']*)' referenced$`)
)

// anchorFault finds the alias, which the library names but does not place.
func anchorFault(data []byte, name string) Fault {
	f := Fault{Line: 1, Column: 1, Reason: UnsupportedYAML}
	f.Msg = fmt.Sprintf("*%s is an alias for an anchor &%s that is not there: if you mean the text, quote it, %q",
		name, name, "*"+name)
	alias := regexp.MustCompile(`(?:^|[\s,\[{:-])(\*` + regexp.QuoteMeta(name) + `)(?:$|[\s,\]}])`)
	for i, text := range strings.Split(string(data), "\n") {
		code, _, _ := strings.Cut(text, " #")
		if m := alias.FindStringSubmatchIndex(code); m != nil && !strings.HasPrefix(strings.TrimSpace(code), "#") {
			f.Line, f.Column = i+1, columnOf(text, m[2])
			break
		}
	}
	return f
}

// faultyLine finds the line at fault: the one behind the longest part of the file that can be read. It looks back from
// where the library gave up, and gives up itself, with 0, when that would take long.
func faultyLine(data []byte, sum *int) int {
	if *sum > maxRecoverBytes {
		return 0
	}
	reader := &byteReader{data: data}
	if _, err := load(reader); err == nil {
		return 0
	}
	starts := []int{0}
	for i, b := range data[:max(0, reader.read-1)] {
		if b == '\n' {
			starts = append(starts, i+1)
		}
	}
	tried, parsed := 0, 0
	for line := len(starts); line > 0; line-- {
		part := data[:starts[line-1]]
		tried++
		parsed += len(part)
		*sum += len(part)
		if tried > maxFaultyLines || parsed > maxFaultyBytes {
			return 0
		}
		if _, err := load(bytes.NewReader(part)); err == nil || errors.Is(err, io.EOF) {
			return line
		}
	}
	return 0
}

// byteReader gives out one byte at a time, and so knows how far somebody has read.
type byteReader struct {
	data []byte
	read int
}

func (r *byteReader) Read(b []byte) (int, error) {
	if r.read == len(r.data) {
		return 0, io.EOF
	}
	if len(b) == 0 {
		return 0, nil
	}
	b[0] = r.data[r.read]
	r.read++
	return 1, nil
}

// syntax is what is known of a fault in the YAML itself.
type syntax struct {
	problem string // in the library's words
	text    string // of the line
	above   string // the line before
	at      int    // the byte of text at fault
}

// advice says what is wrong and what to write instead, and moves at to where that is.
func (s *syntax) advice() string {
	indent := s.text[:len(s.text)-len(strings.TrimLeft(s.text, " \t"))]
	if i := strings.IndexByte(indent, '\t'); i >= 0 {
		s.at = i
		return "a tab character cannot indent: use spaces"
	}
	switch s.problem {
	case "mapping values are not allowed in this context":
		return s.strayColon()
	case "did not find expected alphabetic or numeric character":
		return s.indicator("*&")
	case "found character that cannot start any token":
		return s.indicator("%@`\t")
	case "found unknown escape character":
		if m := unknownEscape.FindStringIndex(s.text); m != nil {
			s.at = m[0]
		}
		return `in double quotes a backslash begins an escape: use single quotes, as in '\d+'`
	case "found unexpected end of stream":
		s.at = max(s.at, strings.IndexAny(s.text, `"'`))
		return "a quote is opened and not closed: close it, or quote the whole text in the other kind of quotes"
	case "could not find expected ':'":
		return "this is neither key: value nor part of a list: write a colon with a space behind it, " +
			"or begin with - and a space"
	case "did not find expected key":
		return s.strayText()
	case "did not find expected '-' indicator":
		return "this line stands where the list above it stands: begin with - and a space, " +
			"or indent it like the keys that it belongs to"
	case "did not find expected ',' or ']'":
		return "a list in [ ] has no end, or no comma between two entries; quote entries that have [ ] { } or , in them"
	case "did not find expected ',' or '}'":
		return "a mapping in { } has no end, or no comma between two entries; " +
			`quote values that have { } [ ] or , in them, as in {path: "/users/{id}"}`
	case "did not find expected node content":
		return "there is a , ] or } where a value should be, or a [ or { without an end"
	case "block sequence entries are not allowed in this context":
		return "a list cannot begin here: begin it on a line of its own, or write it in [ ]"
	case "did not find expected comment or line break":
		return "text cannot begin behind | or >: begin it on the next line, or quote a value that begins with one of them"
	}
	if strings.HasPrefix(strings.TrimLeft(s.text, " "), "%") {
		return "a line cannot begin with %: remove the directive, or quote the text"
	}
	return s.problem
}

var (
	unknownEscape = regexp.MustCompile(`\\[^0abt\tnvfre "/\\N_LPxuU]`)
	tightColon    = regexp.MustCompile(`^\s*(?:- +)?[\w.-]+:[^\s/]`)
	withValue     = regexp.MustCompile(`^\s*(?:- +)?[^\s#][^:]*: +[^\s#|>&]`)
)

func (s *syntax) strayColon() string {
	if tightColon.MatchString(s.above) {
		return "the line above has no space behind its colon: write key: value"
	}
	first := strings.Index(s.text, ": ")
	if first >= 0 {
		if second := strings.Index(s.text[first+1:], ": "); second >= 0 {
			s.at = first + 1 + second
			return "a second colon in one value: quote the value, or begin a mapping on the next line"
		}
	}
	if withValue.MatchString(s.above) {
		return "this line is indented deeper than the one above, which has a value already: " +
			"give keys of one mapping the same indentation"
	}
	return "a colon cannot stand here: quote a value that has a colon and a space in it, " +
		"and give keys of one mapping the same indentation"
}

func (s *syntax) strayText() string {
	trimmed := strings.TrimLeft(s.text, " ")
	switch {
	case strings.HasPrefix(trimmed, "- "):
		return "a list entry stands among the keys of a mapping: indent it below the key that it belongs to"
	case strings.Count(s.text, "'") > 2 || strings.Count(s.text, `"`) > 2:
		return "there is text behind a closing quote: " +
			"write a quote inside single quotes twice, as in 'it''s', or use the other kind"
	}
	return "the indentation fits no mapping above: give keys of one mapping the same indentation"
}

// indicator is for a value that begins with a character that means something else to YAML.
func (s *syntax) indicator(characters string) string {
	for i := range len(s.text) {
		begins := i == 0 || strings.IndexByte(" \t[{,", s.text[i-1]) >= 0
		if !begins || strings.IndexByte(characters, s.text[i]) < 0 {
			continue
		}
		s.at = i
		word, _, _ := strings.Cut(s.text[i:], " ")
		switch word = strings.TrimRight(word, ",]}\r"); s.text[i] {
		case '\t':
			return "a tab character cannot stand here: use spaces"
		case '*':
			return fmt.Sprintf("a value that begins with * is an alias to YAML: quote it, %q", word)
		case '&':
			return fmt.Sprintf("a value that begins with & is an anchor to YAML: quote it, %q", word)
		}
		return fmt.Sprintf("a value cannot begin with %c: quote it, %q", s.text[i], word)
	}
	return s.problem + ": quote the value"
}

// lineText is a line of the file without its end; lines count from 1.
func lineText(data []byte, line int) string {
	for ; line > 1; line-- {
		i := bytes.IndexByte(data, '\n')
		if i < 0 {
			return ""
		}
		data = data[i+1:]
	}
	text, _, _ := bytes.Cut(data, []byte("\n"))
	return strings.TrimSuffix(string(text), "\r")
}

// columnOf is the column of a byte of a line.
func columnOf(text string, i int) int { return utf8.RuneCountInString(text[:i]) + 1 }
