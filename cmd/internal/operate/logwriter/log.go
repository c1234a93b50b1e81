package logwriter

import (
	"bytes"
	"io"
	"log/slog"
	"os/signal"
	"strings"
	"syscall"
)

// logBuffer holds about 2,000 lines.
const logBuffer = 512 << 10

// NewLog returns a Writer for the lines of a log, such as that of a service on standard error. format returns a logger in
// the format of the log, which reports dropped lines. NewLog makes the process ignore SIGPIPE: if the reader of standard
// output or standard error exits, lines are dropped and the process continues.
func NewLog(output io.Writer, format func(io.Writer) *slog.Logger) *Writer {
	signal.Ignore(syscall.SIGPIPE)
	return New(Config{Output: output, Buffer: logBuffer, OnLost: func(lost int64) []byte {
		var line bytes.Buffer
		format(&line).Error("log lines dropped: output blocked or failed", "dropped_lines", lost)
		return line.Bytes()
	}})
}

// Errors is an output for libraries that write lines of text about errors. Each Write is one record of the default logger.
type Errors struct{ Library string }

// Write implements [io.Writer].
func (e Errors) Write(text []byte) (int, error) {
	slog.Error("library error", "library", e.Library, "error", strings.TrimSpace(string(text)))
	return len(text), nil
}
