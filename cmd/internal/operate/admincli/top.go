package admincli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// TopScreen returns a function that writes the top keys. With again it clears the screen first if the output is a terminal.
func TopScreen(near, again bool) func(*adminmsg.Top, io.Writer, term.Style) error {
	return func(t *adminmsg.Top, w io.Writer, s term.Style) error {
		if again && term.IsTerminal(w) {
			fmt.Fprint(w, term.ClearScreen)
		}
		return WriteTop(t, near, w, s)
	}
}

// WriteTop writes a table of the keys denied most often or, with near, most often near their limit.
func WriteTop(t *adminmsg.Top, near bool, w io.Writer, s term.Style) error {
	none, head := "no keys were denied in the last minutes", "keys denied most often in the last minutes"
	if near {
		none, head = "no keys were near their limit in the last minutes", "keys most often near their limit in the last minutes"
	}
	if len(t.Entries) == 0 {
		_, err := fmt.Fprintln(w, none)
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
			key = "(all clients)"
		}
		share := float64(e.Count) / float64(max(1, total))
		rows = append(rows, []string{
			term.Right(term.Thousands(e.Count), 9), term.Right(term.Thousands(e.MaxError), 5), term.Printable(e.Rule), key,
			fmt.Sprintf("%s %.0f %%", shareBar(share, 20), 100*share),
		})
	}
	rows[0][0], rows[0][1] = term.Right("count", 9), term.Right("±", 5)
	fmt.Fprintln(w, s.Bold(head))
	if err := term.Table(w, rows); err != nil {
		return err
	}
	for i := range t.Entries {
		e := &t.Entries[i]
		if !isRequestLimit(e.Rule) { // which peek does not know
			_, err := fmt.Fprintln(w, s.Faint("\nfor details: sluice peek "+arguments(append([]string{e.Rule}, keyWords(e.Key)...))))
			return err
		}
	}
	return nil
}

// isRequestLimit reports whether rule is the name of a limit that RLS requests carry, which is in no file: messaging//1m0s.
func isRequestLimit(rule string) bool {
	i := strings.LastIndex(rule, "//")
	if i < 0 {
		return false
	}
	_, err := time.ParseDuration(rule[i+len("//"):])
	return err == nil
}

// shareBar draws share, from 0 to 1, as a bar of the given width, in steps of 1/8 column.
func shareBar(share float64, columns int) string {
	eighths := int(share*float64(8*columns) + 0.5)
	text := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		text += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	return text + strings.Repeat(" ", columns-term.Width(text))
}
