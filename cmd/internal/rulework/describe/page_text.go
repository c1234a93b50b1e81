package describe

import (
	"fmt"
	"io"
	"strings"

	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// backoff is advice for clients, one paragraph each.
var backoff = []string{
	"Wait for the seconds in Retry-After before you retry, plus a random delay, so that your processes do not all " +
		"retry at the same time.",
	"If the response has no Retry-After, or there is no response, use exponential backoff with jitter: wait a random " +
		"time of up to 1, 2, 4, 8 seconds, and so on up to 60 seconds.",
	"Give up after a few attempts and report the error. Retry only idempotent requests.",
	"Better, stay below the limit: spread your requests so that the remaining quota lasts until the reset, and cache " +
		"responses that do not change.",
}

// sameLimit is the cell of a plan without its own limit.
const sameLimit = "same limit"

// cells returns a limit's row, without the columns that no limit uses.
func (d *Page) cells(l *publicLimit) []string {
	row := []string{l.Description, l.Requests, l.CountedPer, l.Limit}
	for _, tier := range l.Tiers {
		if tier == "" {
			tier = sameLimit
		}
		row = append(row, tier)
	}
	return append(row, strings.Join(l.Notes, "; "))
}

// rows returns the table of limits with its heading. Columns that are empty throughout are left out.
func (d *Page) rows() [][]string {
	head := append([]string{"Description", "Requests", "Counted per", "Limit"}, d.Tiers...)
	rows := [][]string{append(head, "Notes")}
	for i := range d.Limits {
		rows = append(rows, d.cells(&d.Limits[i]))
	}
	last, used := len(rows[0])-1, false
	for _, row := range rows[1:] {
		used = used || row[last] != ""
	}
	if !used {
		for i := range rows {
			rows[i] = rows[i][:last]
		}
	}
	return rows
}

const noLimits = "There are no public limits."

// WriteText writes the page for a terminal.
func (d *Page) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", term.Printable(d.Title))
	if len(d.Limits) == 0 {
		fmt.Fprintf(&b, "%s\n\n", noLimits)
	} else {
		if err := d.writeBlocks(&b); err != nil {
			return err
		}
	}
	for _, p := range d.Intro {
		fmt.Fprintf(&b, "%s\n\n", wrap(p, 100))
	}
	rows := make([][]string, 0, len(d.Headers))
	for _, h := range d.Headers {
		rows = append(rows, []string{"  " + h.Name, h.On, h.Meaning})
	}
	if err := term.Table(&b, rows); err != nil {
		return err
	}
	b.WriteByte('\n')
	for i := range d.Examples {
		e := &d.Examples[i]
		fmt.Fprintf(&b, "%s:\n\n%s\n", term.Printable(e.Heading()), indent(e.String()))
	}
	for _, p := range backoff {
		fmt.Fprintf(&b, "- %s\n", strings.ReplaceAll(wrap(p, 98), "\n", "\n  "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeBlocks writes a block for each limit, because a table with a column for each plan would be wider than a
// terminal.
func (d *Page) writeBlocks(w io.Writer) error {
	rows := d.rows()
	for _, row := range rows[1:] {
		fmt.Fprintln(w, oneLine(row[0]))
		var block [][]string
		for i, cell := range row[1:] {
			if cell != "" && cell != sameLimit {
				block = append(block, []string{"  " + oneLine(rows[0][i+1]), oneLine(cell)})
			}
		}
		if err := term.Table(w, block); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	return nil
}

func oneLine(s string) string { return term.Printable(strings.Join(strings.Fields(s), " ")) }

// WriteMarkdown writes the page as Markdown.
func (d *Page) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n", markdownText(d.Title))
	if len(d.Limits) == 0 {
		fmt.Fprintf(&b, "%s\n", noLimits)
	} else {
		for i, row := range d.rows() {
			for j := range row {
				row[j] = markdownText(row[j])
			}
			fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
			if i == 0 {
				fmt.Fprintf(&b, "|%s\n", strings.Repeat("---|", len(row)))
			}
		}
	}
	fmt.Fprintf(&b, "\n## Requests over a limit\n\n%s\n\n| Header | On | Meaning |\n|---|---|---|\n", strings.Join(d.Intro, "\n\n"))
	for _, h := range d.Headers {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", h.Name, h.On, markdownText(h.Meaning))
	}
	for i := range d.Examples {
		e := &d.Examples[i]
		fmt.Fprintf(&b, "\n%s:\n\n%s", markdownText(e.Heading()), indent(e.String()))
	}
	b.WriteString("\n## Retries and backoff\n\n")
	for _, p := range backoff {
		fmt.Fprintf(&b, "- %s\n", markdownText(p))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// markdownText escapes characters with a meaning in Markdown or HTML, and joins the lines.
func markdownText(s string) string {
	var b strings.Builder
	for _, r := range oneLine(s) {
		switch {
		case r == '<':
			b.WriteString("&lt;")
			continue
		case r == '&':
			b.WriteString("&amp;")
			continue
		case strings.ContainsRune("\\`*_[]|~!#>", r):
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// indent makes a block of code, which no content can end early.
func indent(s string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		if strings.TrimSpace(line) != "" {
			b.WriteString("    ")
		}
		b.WriteString(term.Printable(strings.TrimSuffix(line, "\n")) + "\n")
	}
	return b.String()
}

// wrap breaks a text into lines.
func wrap(s string, most int) string {
	var b strings.Builder
	at := 0
	for _, word := range strings.Fields(s) {
		switch {
		case at > 0 && at+1+term.Width(word) > most:
			b.WriteByte('\n')
			at = 0
		case at > 0:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += term.Width(word)
	}
	return b.String()
}
