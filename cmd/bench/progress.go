package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// progress shows the progress of a run: a bar on a terminal, otherwise an occasional line.
type progress struct {
	w        io.Writer
	terminal bool
	begun    time.Time
	last     time.Time
}

func newProgress(w io.Writer) *progress {
	p := &progress{w: w, begun: time.Now()}
	if f, ok := w.(*os.File); ok {
		info, err := f.Stat()
		p.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return p
}

const (
	barWidth  = 30
	plainEach = 15 * time.Second
)

func (p *progress) show(done, total int, what string) {
	now := time.Now()
	switch {
	case p.terminal:
		full := barWidth * done / max(1, total)
		bar := strings.Repeat("#", full) + strings.Repeat(".", barWidth-full)
		fmt.Fprintf(p.w, "\r\x1b[K[%s] %d/%d %s", bar, done, total, what)
	case now.Sub(p.last) >= plainEach:
		p.last = now
		fmt.Fprintf(p.w, "bench: %d/%d after %v: %s\n", done, total, now.Sub(p.begun).Round(time.Second), what)
	}
}

// end clears the bar.
func (p *progress) end() {
	if p.terminal {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
