package logwriter

import (
	"bytes"
	"io"
	"log/slog"
	"os/signal"
	"strings"
	"syscall"
)

// logBuffer is enough for some 2,000 lines.
const logBuffer = 512 << 10

// NewLog returns a Writer for the lines of a log, such as that of a service on standard error. The function returns a
// logger that writes in the log's format; lost lines are reported by it. From then on a reader of the process's outputs that
// goes away does not end the process by SIGPIPE: lines are lost, as when it does not read.
func NewLog(output io.Writer, format func(io.Writer) *slog.Logger) *Writer {
	signal.Ignore(syscall.SIGPIPE)
	return New(Config{Output: output, Buffer: logBuffer, OnLost: func(lost int64) []byte {
		var line bytes.Buffer
		format(&line).Error("log lines lost: the output of the log was blocked or failed", "lost", lost)
		return line.Bytes()
	}})
}

// Errors is an output for libraries that write lines of text about errors. Each Write is one record of the default logger.
type Errors struct{ Library string }

// Write implements [io.Writer].
func (e Errors) Write(text []byte) (int, error) {
	slog.Error("error reported by a library", "library", e.Library, "error", strings.TrimSpace(string(text)))
	return len(text), nil
}
