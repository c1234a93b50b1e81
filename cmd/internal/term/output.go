package term

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

// Output is the flag -o: how results are written.
type Output struct{ format string }

// AddFlag adds the flag to a command.
func (o *Output) AddFlag(c *cobra.Command) {
	o.format = "text"
	c.Flags().VarP(o, "output", "o", "write results as text or json")
	CompleteFlag(c, "output", "text", "json")
}

// IsJSON tells whether results are for programs.
func (o *Output) IsJSON() bool { return o.format == "json" }

// String, Set and Type make it a flag's value.
func (o *Output) String() string { return o.format }

// Set refuses what is not a format while the flags are read, before anything is done.
func (o *Output) Set(s string) error {
	if s != "text" && s != "json" {
		return fmt.Errorf("write -o text or -o json")
	}
	o.format = s
	return nil
}

// Type is shown in the help.
func (o *Output) Type() string { return "text|json" }

// WriteJSON writes a value for programs to read, and for people who look at what those get.
func WriteJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// Style colours text if the output is a terminal and NO_COLOR is not set.
type Style struct{ On bool }

// NewStyle is the style of an output.
func NewStyle(w io.Writer) Style {
	return Style{os.Getenv("NO_COLOR") == "" && IsTerminal(w)}
}

func (s Style) paint(code, text string) string {
	if !s.On || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Red and those below colour a text.
func (s Style) Red(text string) string    { return s.paint("31", text) }
func (s Style) Green(text string) string  { return s.paint("32", text) }
func (s Style) Yellow(text string) string { return s.paint("33", text) }
func (s Style) Bold(text string) string   { return s.paint("1", text) }
func (s Style) Faint(text string) string  { return s.paint("2", text) }

// Mark is a tick or a cross.
func (s Style) Mark(ok bool) string {
	if ok {
		return s.Green("✓")
	}
	return s.Red("✗")
}

// Table writes rows in columns. It is for texts without colours: those would count as width.
func Table(w io.Writer, rows [][]string) error {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], Width(cell))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		for i, cell := range row {
			b.WriteString(cell)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-Width(cell)+2))
			}
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, trailing.ReplaceAllString(b.String(), "\n"))
	return err
}

// trailing is what a last cell without a text leaves at the end of a line.
var trailing = regexp.MustCompile(` +\n`)

// Width is how many columns of a terminal a text takes: East Asian letters take two.
func Width(s string) int {
	n := 0
	for _, r := range s {
		n += RuneWidth(r)
	}
	return n
}

// RuneWidth is how many columns a letter takes.
func RuneWidth(r rune) int {
	if unicode.In(r, unicode.Hangul, unicode.Han, unicode.Hiragana, unicode.Katakana) || r >= 0xff01 && r <= 0xff60 {
		return 2
	}
	return 1
}

// Printable replaces what could steer a terminal: files and requests are not written by who reads about them.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\t' && !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// Count writes "1 rule" and "2 rules".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// CompleteFlag has shells complete the value of a flag: one of some words, or nothing.
func CompleteFlag(c *cobra.Command, name string, words ...string) {
	_ = c.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// CompleteRules has shells complete rule files and directories.
func CompleteRules(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
}
