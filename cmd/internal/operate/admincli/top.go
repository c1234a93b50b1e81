package admincli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// TopScreen returns what writes a top. With again it takes the place of the one before, if the output is a terminal.
func TopScreen(near, again bool) func(*adminmsg.Top, io.Writer, term.Style) error {
	return func(t *adminmsg.Top, w io.Writer, s term.Style) error {
		if again && term.IsTerminal(w) {
			fmt.Fprint(w, term.ClearScreen)
		}
		return WriteTop(t, near, w, s)
	}
}

func WriteTop(t *adminmsg.Top, near bool, w io.Writer, s term.Style) error {
	what := "denied"
	if near {
		what = "near their limit"
	}
	if len(t.Entries) == 0 {
		_, err := fmt.Fprintf(w, "nobody was %s of late\n", what)
		return err
	}
	var total int64
	for i := range t.Entries {
		total += t.Entries[i].Count
	}
	rows := [][]string{{"count", "±", "rule", "key", "share"}}
	for i := range t.Entries {
		e := &t.Entries[i]
		key := keyText(e.Key)
		if key == "" {
			key = "(everybody)"
		}
		share := float64(e.Count) / float64(max(1, total))
		rows = append(rows, []string{
			term.Right(term.Thousands(e.Count), 9), term.Right(term.Thousands(e.Error), 5), term.Printable(e.Rule), key,
			fmt.Sprintf("%s %.0f %%", shareBar(share, 20), 100*share),
		})
	}
	rows[0][0], rows[0][1] = term.Right("count", 9), term.Right("±", 5)
	fmt.Fprintln(w, s.Bold("most "+what+" of late"))
	if err := term.Table(w, rows); err != nil {
		return err
	}
	for i := range t.Entries {
		e := &t.Entries[i]
		if !isRequestLimit(e.Rule) { // which peek does not know
			_, err := fmt.Fprintln(w, s.Faint("\nto look closer: sluice peek "+arguments(append([]string{e.Rule}, keyWords(e.Key)...))))
			return err
		}
	}
	return nil
}

// isRequestLimit reports whether a name is that of limits that requests bring, which are in no file: messaging//1m0s.
func isRequestLimit(rule string) bool {
	i := strings.LastIndex(rule, "//")
	if i < 0 {
		return false
	}
	_, err := time.ParseDuration(rule[i+len("//"):])
	return err == nil
}

// shareBar draws a share of 1 in so many columns, by eighths of one.
func shareBar(share float64, columns int) string {
	eighths := int(share*float64(8*columns) + 0.5)
	text := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		text += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	return text + strings.Repeat(" ", columns-term.Width(text))
}
