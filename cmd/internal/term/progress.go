package term

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Progress shows the progress of long work: on a terminal a bar that is redrawn, elsewhere a line every few seconds. Both
// begin after some time, so that short work shows nothing. It is not safe for concurrent use.
type Progress struct {
	w        io.Writer
	name     string // of the command
	unit     string // singular
	terminal bool
	began    time.Time
	last     time.Duration // since began, of the last output
	shown    bool
}

// Intervals between outputs, and the time until the first on a terminal.
const (
	progressLine = 5 * time.Second
	progressBar  = 250 * time.Millisecond
	progressWait = time.Second
	barColumns   = 24
)

// NewProgress returns the progress of a command, which counts its work in units such as "request".
func NewProgress(w io.Writer, name, unit string) *Progress {
	return &Progress{w: w, name: name, unit: unit, terminal: IsTerminal(w), began: time.Now()}
}

// Report shows the number of units done, and the bytes read of a total; a total of 0 is unknown. It may be called often.
func (p *Progress) Report(units, read, total int64) {
	d := time.Since(p.began)
	switch {
	case p.terminal && d >= progressWait && d-p.last >= progressBar:
		fmt.Fprintf(p.w, "\r\x1b[K%s", p.text(d, units, read, total))
	case !p.terminal && d-p.last >= progressLine:
		fmt.Fprintf(p.w, "%s: %s\n", p.name, p.text(d, units, read, total))
	default:
		return
	}
	p.last, p.shown = d, true
}

func (p *Progress) text(d time.Duration, units, read, total int64) string {
	done := fmt.Sprintf("%s %ss, %s/s", Thousands(units), p.unit, Thousands(int64(float64(units)/d.Seconds())))
	if total <= 0 || read <= 0 {
		return done + fmt.Sprintf(", %d MiB read", read>>20)
	}
	share := min(float64(read)/float64(total), 1)
	left := time.Duration(float64(d) * (1 - share) / share)
	text := fmt.Sprintf("%3.0f %%, %s, %s left", 100*share, done, Duration(left.Round(time.Second)))
	if p.terminal {
		full := int(barColumns * share)
		return "[" + strings.Repeat("#", full) + strings.Repeat(".", barColumns-full) + "] " + text
	}
	return strings.TrimLeft(text, " ")
}

// End removes the bar.
func (p *Progress) End() {
	if p.terminal && p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
