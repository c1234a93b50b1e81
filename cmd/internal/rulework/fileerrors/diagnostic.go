package fileerrors

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/rulefile"
	"github.com/sluiceproject/sluice/rules"
)

// Diagnostic is one error or warning.
type Diagnostic struct {
	Severity string `json:"severity"` // "error" or "warning"
	File     string `json:"file,omitempty"`
	Line     int    `json:"line,omitempty"`
	Column   int    `json:"column,omitempty"`
	Rule     string `json:"rule,omitempty"`
	Message  string `json:"message"`
	Text     string `json:"text,omitempty"` // the line
}

func New(severity string, at rules.Position, rule, message string) Diagnostic {
	return Diagnostic{Severity: severity, File: at.File, Line: at.Line, Column: at.Column, Rule: rule, Message: message}
}

// Split splits an error into errors in rule files and other errors.
func Split(err error) (found []Diagnostic, other error) {
	if err == nil {
		return nil, nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var others []error
		for _, e := range joined.Unwrap() {
			f, o := Split(e)
			found = append(found, f...)
			others = append(others, o)
		}
		return found, errors.Join(others...)
	}
	var fault *rules.Error
	if errors.As(err, &fault) {
		return []Diagnostic{New("error", fault.Pos, fault.Rule, fault.Msg)}, nil
	}
	return nil, err
}

// AddLines adds the source lines to diagnostics.
func AddLines(found []Diagnostic, sources []rulefile.File) {
	lines := make(map[string][]string)
	for _, s := range sources {
		lines[s.Name] = strings.Split(string(s.Data), "\n")
	}
	for i := range found {
		if all := lines[found[i].File]; found[i].Line > 0 && found[i].Line <= len(all) {
			found[i].Text = strings.TrimSuffix(all[found[i].Line-1], "\r")
		}
	}
}

// Write prints the diagnostic, and the line with a mark below the column.
func (f *Diagnostic) Write(w io.Writer, s term.Style) {
	where := rules.Position{File: f.File, Line: f.Line, Column: f.Column}.String()
	if where != "" {
		where = s.Bold(term.Printable(where)) + ": "
	}
	severity := s.Red("error")
	if f.Severity == "warning" {
		severity = s.Yellow("warning")
	}
	rule := ""
	if f.Rule != "" {
		rule = fmt.Sprintf("rule %s: ", term.Printable(f.Rule))
	}
	fmt.Fprintf(w, "%s%s: %s%s\n", where, severity, rule, term.Printable(strings.ReplaceAll(f.Message, "\n", "; ")))
	if strings.TrimSpace(f.Text) == "" {
		return
	}
	text, mark := excerpt(f.Text, f.Column)
	number := fmt.Sprint(f.Line)
	fmt.Fprintf(w, "  %s %s\n", s.Faint(number+" |"), text)
	fmt.Fprintf(w, "  %s %s%s\n", s.Faint(strings.Repeat(" ", len(number))+" |"), mark, s.Green("^"))
}

// excerpt returns the part of a line around a column that fits on a terminal, and the text to print before the mark
// below it.
func excerpt(line string, column int) (text, mark string) {
	const before, most = 60, 100
	all := []rune(term.Printable(line))
	at := min(max(0, column-1), len(all))
	from, to, lead, tail := 0, len(all), "", ""
	if at > before && len(all) > most {
		from, lead = at-before, "…"
	}
	if to-from > most {
		to, tail = from+most, "…"
	}
	var b strings.Builder
	b.WriteString(strings.Repeat(" ", term.Width(lead)))
	for _, r := range all[from:at] {
		if r == '\t' {
			b.WriteByte('\t')
		} else {
			b.WriteString(strings.Repeat(" ", term.RuneWidth(r)))
		}
	}
	return lead + string(all[from:to]) + tail, b.String()
}
