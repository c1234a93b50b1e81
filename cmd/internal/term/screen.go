package term

import (
	"io"
	"os"
	"strings"
	"time"
)

// ClearScreen is the escape sequence that clears a terminal.
const ClearScreen = "\x1b[H\x1b[2J"

// IsTerminal reports whether w is a terminal other than TERM=dumb.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Right aligns a text to the right of a column with the given width.
func Right(text string, columns int) string {
	return strings.Repeat(" ", max(0, columns-Width(text))) + text
}

// Clock formats t in local time, with date and zone.
func Clock(t time.Time) string { return t.Local().Format(time.DateTime + " MST") }
