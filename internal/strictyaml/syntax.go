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

// syntaxFault converts the library's error. The library describes what it expected, and often gives the line where the
// enclosing value begins instead of the line with the error.
//
// To find that line it parses the file again, and adds the number of bytes to parsed.
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

// anchorFault finds the position of the alias, because the library only gives its name.
func anchorFault(data []byte, name string) Fault {
	f := Fault{Line: 1, Column: 1, Reason: UnsupportedYAML}
	f.Msg = fmt.Sprintf("unknown anchor &%[2]s of the alias *%[1]s: define it, or quote the text, %[3]q",
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

// faultyLine returns the line with the error: the one after the longest prefix of the file that parses. It searches
// backwards from the position where the library stopped. It returns 0 if the search would take too long.
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

// byteReader returns one byte per call, and so records how far the library has read.
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

// syntax describes an error in the YAML itself.
type syntax struct {
	problem string // the library's message
	text    string // the line
	above   string // the line above
	at      int    // byte offset of the error in text
}

// advice returns a message with the error and what to write instead, and moves at to the position of the error.
func (s *syntax) advice() string {
	indent := s.text[:len(s.text)-len(strings.TrimLeft(s.text, " \t"))]
	if i := strings.IndexByte(indent, '\t'); i >= 0 {
		s.at = i
		return "indented with a tab: use spaces"
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
		return `unknown escape in double quotes: use single quotes, as in '\d+'`
	case "found unexpected end of stream":
		s.at = max(s.at, strings.IndexAny(s.text, `"'`))
		return "unclosed quote: close it, or quote the whole text in the other kind of quotes"
	case "could not find expected ':'":
		return "neither key: value nor a list entry: write a colon and a space after the key, " +
			"or begin the line with - and a space"
	case "did not find expected key":
		return s.strayText()
	case "did not find expected '-' indicator":
		return "this line has the indentation of the list above: begin it with - and a space, " +
			"or indent it like the other keys of its mapping"
	case "did not find expected ',' or ']'":
		return "a list in [ ] has no end, or lacks a comma between two entries; quote entries that contain [ ] { } or ,"
	case "did not find expected ',' or '}'":
		return "a mapping in { } has no end, or lacks a comma between two entries; " +
			`quote values that contain { } [ ] or , as in {path: "/users/{id}"}`
	case "did not find expected node content":
		return "found , ] or } instead of a value, or a [ or { without an end"
	case "block sequence entries are not allowed in this context":
		return "a list cannot begin here: begin it on the next line, or write it in [ ]"
	case "did not find expected comment or line break":
		return "text cannot follow | or > on the same line: begin it on the next line, or quote a value that begins with | or >"
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
		return "the line above has no space after its colon: write key: value"
	}
	first := strings.Index(s.text, ": ")
	if first >= 0 {
		if second := strings.Index(s.text[first+1:], ": "); second >= 0 {
			s.at = first + 1 + second
			return "a second colon in one value: quote the value, or begin a mapping on the next line"
		}
	}
	if withValue.MatchString(s.above) {
		return "this line is indented deeper than the line above, which already has a value: " +
			"give keys of one mapping the same indentation"
	}
	return "unexpected colon: quote a value that contains a colon and a space, " +
		"and give keys of one mapping the same indentation"
}

func (s *syntax) strayText() string {
	trimmed := strings.TrimLeft(s.text, " ")
	switch {
	case strings.HasPrefix(trimmed, "- "):
		return "list entry among the keys of a mapping: indent it below its key"
	case strings.Count(s.text, "'") > 2 || strings.Count(s.text, `"`) > 2:
		return "text after a closing quote: " +
			"write a quote inside single quotes twice, as in 'it''s', or use the other kind"
	}
	return "the indentation matches no mapping above: give keys of one mapping the same indentation"
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
			return "unexpected tab character: use spaces"
		case '*':
			return fmt.Sprintf("in YAML a value that begins with * is an alias: quote it, %q", word)
		case '&':
			return fmt.Sprintf("in YAML a value that begins with & is an anchor: quote it, %q", word)
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
