package accesslog

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/operate/logwriter"
)

// Config is how a log is written.
type Config struct {
	Lines  logwriter.Config // File or Output, and Buffer: 4 MiB by default are some ten thousand lines
	Format Format
	Query  bool // write queries too; they may hold secrets
	// Errors is told of lines that were lost and of files that cannot be written. Nil is nobody.
	Errors *slog.Logger
	// CloseTimeout is how long Close waits for an output that blocks. The default is 5 s.
	CloseTimeout time.Duration
}

const (
	writeDelay   = 100 * time.Millisecond
	closeTimeout = 5 * time.Second
)

// Log is an access log that is written to.
type Log struct {
	config  Config
	scratch sync.Pool // *[]byte
	lines   *logwriter.Writer
}

// Open opens a log.
func Open(c Config) (*Log, error) {
	if c.Errors == nil {
		c.Errors = slog.New(slog.DiscardHandler)
	}
	if c.CloseTimeout <= 0 {
		c.CloseTimeout = closeTimeout
	}
	c.Lines.Delay = writeDelay
	c.Lines.OnLost = func(lost int64) []byte {
		c.Errors.Warn("lines of the access log were lost", "lost", lost)
		return nil
	}
	c.Lines.OnError = func(err error) {
		c.Errors.Error("the access log cannot be written: requests go on, their lines are lost", "error", err)
	}
	lines, err := logwriter.Open(c.Lines)
	if err != nil {
		return nil, fmt.Errorf("accesslog: %w", err)
	}
	l := &Log{config: c, lines: lines}
	l.scratch.New = func() any { b := make([]byte, 0, 1<<10); return &b }
	return l, nil
}

// Write has a record written. It keeps nothing of it and never waits for the file; after Close it does nothing.
func (l *Log) Write(r *Record) {
	scratch := l.scratch.Get().(*[]byte)
	line := (*scratch)[:0]
	if l.config.Format == Combined {
		line = appendCombined(line, r, l.config.Query)
	} else {
		line = appendJSON(line, r, l.config.Query)
	}
	_, _ = l.lines.Write(line)
	*scratch = line
	l.scratch.Put(scratch)
}

// Dropped is how many lines were lost since the log was opened: there was no room for them, or writing them failed.
func (l *Log) Dropped() int64 { return l.lines.Lost() }

// Reopen goes on in a new file of the same name, which programs that rotate logs ask for after they have renamed the old
// one. Every line is in one of the two. If there can be no new file, the log stays with the old one.
func (l *Log) Reopen() error {
	if err := l.lines.Reopen(); err != nil {
		return fmt.Errorf("accesslog: %w", err)
	}
	return nil
}

// Close writes what is waiting and closes the file. A standard output that nobody reads is given up after CloseTimeout.
func (l *Log) Close() error {
	if err := l.lines.Close(l.config.CloseTimeout); err != nil {
		return fmt.Errorf("accesslog: %w", err)
	}
	return nil
}
