package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
)

// output is the flag -o: how results are written.
type output struct{ format string }

// flag adds the flag to a command.
func (o *output) flag(c *cobra.Command) {
	o.format = "text"
	c.Flags().VarP(o, "output", "o", "write results as text or json")
	completeFlag(c, "output", "text", "json")
}

func (o *output) json() bool { return o.format == "json" }

// String, Set and Type make it a flag's value.
func (o *output) String() string { return o.format }

// Set refuses what is not a format while the flags are read, before anything is done.
func (o *output) Set(s string) error {
	if s != "text" && s != "json" {
		return fmt.Errorf("write -o text or -o json")
	}
	o.format = s
	return nil
}

// Type is shown in the help.
func (o *output) Type() string { return "text|json" }

// writeJSON writes a value for programs to read, and for people who look at what those get.
func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// style colours text if the output is a terminal and NO_COLOR is not set.
type style struct{ on bool }

func newStyle(w io.Writer) style {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return style{}
	}
	info, err := f.Stat()
	return style{err == nil && info.Mode()&os.ModeCharDevice != 0}
}

func (s style) paint(code, text string) string {
	if !s.on || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s style) red(text string) string    { return s.paint("31", text) }
func (s style) green(text string) string  { return s.paint("32", text) }
func (s style) yellow(text string) string { return s.paint("33", text) }
func (s style) bold(text string) string   { return s.paint("1", text) }
func (s style) faint(text string) string  { return s.paint("2", text) }

// mark is a tick or a cross.
func (s style) mark(ok bool) string {
	if ok {
		return s.green("✓")
	}
	return s.red("✗")
}

// table writes rows in columns. It is for texts without colours: those would count as width.
func table(w io.Writer, rows [][]string) error {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], width(cell))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		for i, cell := range row {
			b.WriteString(cell)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-width(cell)+2))
			}
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, trailing.ReplaceAllString(b.String(), "\n"))
	return err
}

// trailing is what a last cell without a text leaves at the end of a line.
var trailing = regexp.MustCompile(` +\n`)

// width is how many columns of a terminal a text takes: East Asian letters take two.
func width(s string) int {
	n := 0
	for _, r := range s {
		n += runeWidth(r)
	}
	return n
}

func runeWidth(r rune) int {
	if unicode.In(r, unicode.Hangul, unicode.Han, unicode.Hiragana, unicode.Katakana) || r >= 0xff01 && r <= 0xff60 {
		return 2
	}
	return 1
}

// printable replaces what could steer a terminal: files and requests are not written by who reads about them.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\t' && !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// count writes "1 rule" and "2 rules".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// completeFlag has shells complete the value of a flag: one of some words, or nothing.
func completeFlag(c *cobra.Command, name string, words ...string) {
	_ = c.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// completeRules has shells complete rule files and directories.
func completeRules(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
}
