package accesslog

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/operate/logwriter"
)

// Config configures a [Log].
type Config struct {
	Lines  logwriter.Config // File or Output, and Buffer: the default of 4 MiB holds about 10,000 lines
	Format Format
	Query  bool // write query strings, which may contain secrets
	// Errors receives reports of dropped lines and failed writes. Nil discards them.
	Errors *slog.Logger
	// CloseTimeout is the maximum time that Close waits for a blocked output. The default is 5 s.
	CloseTimeout time.Duration
}

const (
	writeDelay   = 100 * time.Millisecond
	closeTimeout = 5 * time.Second
)

// Log is an access log. It is safe for concurrent use.
type Log struct {
	config  Config
	scratch sync.Pool // *[]byte
	lines   *logwriter.Writer
}

// Open opens an access log.
func Open(c Config) (*Log, error) {
	if c.Errors == nil {
		c.Errors = slog.New(slog.DiscardHandler)
	}
	if c.CloseTimeout <= 0 {
		c.CloseTimeout = closeTimeout
	}
	c.Lines.Delay = writeDelay
	c.Lines.OnLost = func(lost int64) []byte {
		c.Errors.Warn("access log lines dropped", "dropped_lines", lost)
		return nil
	}
	c.Lines.OnError = func(err error) {
		c.Errors.Error("access log write failed", "error", err)
	}
	lines, err := logwriter.Open(c.Lines)
	if err != nil {
		return nil, fmt.Errorf("accesslog: %w", err)
	}
	l := &Log{config: c, lines: lines}
	l.scratch.New = func() any { b := make([]byte, 0, 1<<10); return &b }
	return l, nil
}

// Write adds a record. It keeps no reference to it and never blocks. After Close records are dropped.
func (l *Log) Write(r *Record) {
	scratch := l.scratch.Get().(*[]byte)
	line := (*scratch)[:0]
	if l.config.Format == Combined {
		line = appendCombined(line, r, l.config.Query)
	} else {
		line = AppendJSON(line, r, l.config.Query)
	}
	_, _ = l.lines.Write(line)
	*scratch = line
	l.scratch.Put(scratch)
}

// Dropped returns the number of lines dropped since Open because the buffer was full or writing failed.
func (l *Log) Dropped() int64 { return l.lines.Lost() }

// Reopen opens a new file with the same name, for log rotation after the old file was renamed. Every line is in one of
// the two files. If opening fails, the old file stays in use.
func (l *Log) Reopen() error {
	if err := l.lines.Reopen(); err != nil {
		return fmt.Errorf("accesslog: %w", err)
	}
	return nil
}

// Close writes the buffered lines and closes the file. It returns an error if the output blocks for CloseTimeout.
func (l *Log) Close() error {
	if err := l.lines.Close(l.config.CloseTimeout); err != nil {
		return fmt.Errorf("accesslog: %w", err)
	}
	return nil
}
