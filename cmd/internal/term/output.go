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

// Output is the value of the flag -o: the output format. It implements pflag.Value.
type Output struct{ format string }

// AddFlag adds the flag to a command. The default is text.
func (o *Output) AddFlag(c *cobra.Command) {
	o.format = "text"
	c.Flags().VarP(o, "output", "o", "output format: text or json")
	CompleteFlag(c, "output", "text", "json")
}

// IsJSON reports whether the format is JSON.
func (o *Output) IsJSON() bool { return o.format == "json" }

// String returns the format.
func (o *Output) String() string { return o.format }

// Set validates the format while flags are parsed, before the command does anything.
func (o *Output) Set(s string) error {
	if s != "text" && s != "json" {
		return fmt.Errorf("write -o text or -o json")
	}
	o.format = s
	return nil
}

// Type returns the name of the type for the help.
func (o *Output) Type() string { return "text|json" }

// WriteJSON writes v as indented JSON.
func WriteJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// Style colours text if On is set.
type Style struct{ On bool }

// NewStyle returns the style for w: coloured if w is a terminal and NO_COLOR is not set.
func NewStyle(w io.Writer) Style {
	return Style{os.Getenv("NO_COLOR") == "" && IsTerminal(w)}
}

func (s Style) paint(code, text string) string {
	if !s.On || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Red, Green, Yellow, Bold and Faint return text with the escape sequences of that style.
func (s Style) Red(text string) string    { return s.paint("31", text) }
func (s Style) Green(text string) string  { return s.paint("32", text) }
func (s Style) Yellow(text string) string { return s.paint("33", text) }
func (s Style) Bold(text string) string   { return s.paint("1", text) }
func (s Style) Faint(text string) string  { return s.paint("2", text) }

// Mark returns a green tick or a red cross.
func (s Style) Mark(ok bool) string {
	if ok {
		return s.Green("✓")
	}
	return s.Red("✗")
}

// Table writes rows as aligned columns. Cells must not be coloured, because escape sequences would count as width.
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

// trailing matches the spaces that an empty last cell leaves at the end of a line.
var trailing = regexp.MustCompile(` +\n`)

// Width returns the number of terminal columns of a text. East Asian characters take two.
func Width(s string) int {
	n := 0
	for _, r := range s {
		n += RuneWidth(r)
	}
	return n
}

// RuneWidth returns the number of terminal columns of a character: 1 or 2.
func RuneWidth(r rune) int {
	if unicode.In(r, unicode.Hangul, unicode.Han, unicode.Hiragana, unicode.Katakana) || r >= 0xff01 && r <= 0xff60 {
		return 2
	}
	return 1
}

// Printable replaces control characters, because text from files and requests is untrusted and could send escape sequences to
// the terminal.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\t' && !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// Count formats a number with a noun: "1 rule", "2 rules".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// CompleteFlag sets the shell completions for the value of a flag. Without words, shells complete nothing instead of file names.
func CompleteFlag(c *cobra.Command, name string, words ...string) {
	_ = c.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// CompleteRules returns the shell completions for rule files and directories.
func CompleteRules(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
}
