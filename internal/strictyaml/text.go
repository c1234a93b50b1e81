package strictyaml

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"
)

// checkCharacters finds what is no text, or text that one reader takes for the end of a line and another does not.
func checkCharacters(data []byte) []Fault {
	line, start := 1, 0
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		msg := ""
		switch {
		case r == utf8.RuneError && size <= 1:
			msg = "the file is not UTF-8: save it in that encoding"
		case r == '\n':
			line, start = line+1, i+1
		case r == '\r' && i+1 < len(data) && data[i+1] == '\n', r == '\t':
		case r == '\r':
			msg = "a carriage return does not end a line here: end lines with a line feed"
		case isControl(r), r == '\u0085', r == '\u2028', r == '\u2029', r == '\ufeff', r == '\ufffe', r == '\uffff':
			msg = fmt.Sprintf("an invisible character, %U: remove it", r)
		}
		if msg != "" {
			return []Fault{{Line: line, Column: utf8.RuneCount(data[start:i]) + 1, Reason: UnsupportedYAML, Msg: msg}}
		}
		i += size
	}
	return nil
}

// isControl is for characters that have no place in a text of any kind.
func isControl(r rune) bool {
	return r < ' ' && r != '\n' && r != '\t' && r != '\r' || r >= 0x7f && r < 0xa0 && r != '\u0085'
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
