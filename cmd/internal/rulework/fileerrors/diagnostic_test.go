package fileerrors

import (
	"strings"
	"testing"
	"unicode"

	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// The contents of a file cannot control the terminal or add lines to the output.
func TestFindingsArePrintable(t *testing.T) {
	const evil = "a\x1b[2J\a\nb: ok\u202e"
	var out strings.Builder
	f := Diagnostic{File: evil, Line: 1, Column: 1, Rule: evil, Message: evil, Text: evil}
	f.Write(&out, term.Style{})
	if got := out.String(); strings.Count(got, "\n") != 3 || strings.ContainsFunc(got, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
		t.Errorf("%q", got)
	}
}

func TestExcerpt(t *testing.T) {
	for _, test := range []struct {
		line       string
		column     int
		text, mark string
	}{
		{"    limit: 2", 5, "    limit: 2", "    "},
		{"\tlimit: 2", 2, "\tlimit: 2", "\t"},
		{"이름: x", 5, "이름: x", "      "}, // two columns a syllable
		{"a", 9, "a", " "},
		{"a\x1b[31mb", 1, "a\ufffd[31mb", ""},
		{strings.Repeat("x", 300), 200, "…" + strings.Repeat("x", 100) + "…", strings.Repeat(" ", 61)},
	} {
		if text, mark := excerpt(test.line, test.column); text != test.text || mark != test.mark {
			t.Errorf("%q at %d: %q %q", test.line, test.column, text, mark)
		}
	}
}
