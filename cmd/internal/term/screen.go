package term

import (
	"io"
	"os"
	"strings"
	"time"
)

// ClearScreen empties a terminal.
const ClearScreen = "\x1b[H\x1b[2J"

// IsTerminal tells whether somebody looks at the output.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Right puts a text to the right of a column.
func Right(text string, columns int) string {
	return strings.Repeat(" ", max(0, columns-Width(text))) + text
}

// Clock is a time for people of this place; with the day if that is not today.
func Clock(t time.Time) string {
	t = t.Local()
	if t.Format(time.DateOnly) == time.Now().Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}
