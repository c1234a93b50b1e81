// Package logwriter writes lines of logs in the background, so that no request waits for a file or for the reader of a
// pipe. Lines wait in a bounded buffer. Lines that do not fit or cannot be written are dropped and counted.
package logwriter

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/internal/plainfile"
)

// Config configures a [Writer].
type Config struct {
	File   string        // appended to; created if it does not exist
	Output io.Writer     // instead of a file, such as standard output
	Buffer int           // maximum size of buffered lines in bytes; 0 means 4 MiB
	Delay  time.Duration // maximum time that lines are buffered, to write many at once; 0: none
	// OnLost is called with the number of lines dropped since the last call, at most every 10 s, and once more by Close. The
	// line it returns is written at once; nil writes none. If that line cannot be written, the next call reports
	// the same dropped lines again.
	OnLost func(lost int64) []byte
	// OnError is called with the first error after a success.
	OnError func(error)
}

const (
	defaultBuffer = 4 << 20
	writeBytes    = 64 << 10 // lines are written without delay once their size reaches this
	// writeTimeout is the timeout of a write to a FIFO. The last write has the timeout of Close.
	writeTimeout = time.Second
	// reportInterval is the minimum time between two reports of dropped lines.
	reportInterval = 10 * time.Second
)

// Writer writes lines in the background. It is safe for concurrent use.
type Writer struct {
	config Config
	lost   atomic.Int64

	mu      sync.Mutex // guards the fields below; never held during a write
	waiting []byte     // lines
	spare   []byte     // the buffer of the previous write, for reuse
	running bool
	closed  bool

	some, many chan struct{} // wake the goroutine: there are lines; there are writeBytes of them
	stop, done chan struct{}

	out        sync.Mutex // guards the fields below; held during a write, and taken before mu
	to         io.Writer
	file       *os.File
	timeout    time.Duration // of a write to a FIFO
	torn       bool          // the last write did not end with a line break
	reported   int64
	reportedAt time.Time
	failing    bool
}

// Open returns a Writer to either a file or an output.
func Open(c Config) (*Writer, error) {
	if (c.File == "") == (c.Output == nil) {
		return nil, errors.New("logwriter: set either File or Output")
	}
	w := New(c)
	if c.File != "" {
		f, err := openFile(c.File)
		if err != nil {
			return nil, err
		}
		w.file, w.to = f, f
	}
	return w, nil
}

// New returns a Writer to c.Output.
func New(c Config) *Writer {
	if c.Buffer <= 0 {
		c.Buffer = defaultBuffer
	}
	if c.OnLost == nil {
		c.OnLost = func(int64) []byte { return nil }
	}
	if c.OnError == nil {
		c.OnError = func(error) {}
	}
	return &Writer{
		config: c, to: c.Output, timeout: writeTimeout, some: make(chan struct{}, 1), many: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
}

// openFile opens a regular file or a FIFO without blocking. A FIFO is opened for reading too, because opening it then needs
// no reader, and lines stay in it while its reader is restarted.
func openFile(name string) (*os.File, error) {
	flags := os.O_APPEND | os.O_CREATE | os.O_WRONLY
	fifo, err := isFIFO(name)
	if err != nil {
		return nil, err
	}
	if fifo {
		flags = os.O_RDWR
	}
	f, err := os.OpenFile(name, flags|syscall.O_NONBLOCK, 0o640)
	if err != nil {
		if known := plainfile.CheckCreate(name); known != nil {
			return nil, known
		}
		return nil, plainfile.ExplainWrite(name, err)
	}
	return f, nil
}

// isFIFO reports whether the file is a FIFO. It returns an error if the file exists and is neither a FIFO nor a regular file.
func isFIFO(name string) (bool, error) {
	info, err := os.Stat(name)
	switch {
	case err != nil || info.Mode().IsRegular():
		return false, nil
	case info.Mode()&fs.ModeNamedPipe != 0:
		return true, nil
	}
	return false, fmt.Errorf("%s: is neither a regular file nor a FIFO: name one, or - for standard output, or /dev/null for no log", name)
}

// Check returns the error that [Open] would return for a file, without creating it.
func Check(name string) error {
	if _, err := isFIFO(name); err != nil {
		return err
	}
	return plainfile.CheckCreate(name)
}

// Write adds lines, which must end with a line break. It copies them, never blocks and never fails; after Close all lines
// are dropped.
func (w *Writer) Write(lines []byte) (int, error) {
	w.mu.Lock()
	if w.closed || len(w.waiting)+len(lines) > w.config.Buffer {
		w.mu.Unlock()
		bounds.LogBuffer.Reached()
		w.lose(lines)
		return len(lines), nil
	}
	before := len(w.waiting)
	w.waiting = append(w.waiting, lines...)
	after := len(w.waiting)
	if !w.running {
		w.running = true
		go w.run()
	}
	w.mu.Unlock()
	if before == 0 {
		wake(w.some)
	}
	if before < writeBytes && after >= writeBytes {
		wake(w.many)
	}
	return len(lines), nil
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (w *Writer) lose(lines []byte) { w.lost.Add(int64(bytes.Count(lines, []byte{'\n'}))) }

// run writes lines until Close.
func (w *Writer) run() {
	defer close(w.done)
	timer := time.NewTimer(w.config.Delay)
	defer timer.Stop()
	for {
		select {
		case <-w.some:
		case <-w.stop:
			return
		}
		timer.Reset(w.config.Delay)
		select {
		case <-timer.C:
		case <-w.many:
		case <-w.stop:
			return
		}
		w.flush()
	}
}

func (w *Writer) flush() {
	w.out.Lock()
	defer w.out.Unlock()
	w.flushLocked()
}

// flushLocked writes the buffered lines, and reports dropped lines after a successful write.
func (w *Writer) flushLocked() {
	w.mu.Lock()
	lines := w.waiting
	w.waiting, w.spare = w.spare[:0], nil
	w.mu.Unlock()
	w.writeLocked(lines)
	w.mu.Lock()
	w.spare = lines[:0]
	w.mu.Unlock()
	w.reportLocked()
}

// writeLocked writes lines and reports whether all were written. The others are dropped.
func (w *Writer) writeLocked(lines []byte) bool {
	if len(lines) == 0 {
		return true
	}
	if w.file != nil { // takes effect for FIFOs only; without a deadline Reopen would wait for the reader
		_ = w.file.SetWriteDeadline(time.Now().Add(w.timeout))
	}
	if w.torn { // so that a partial line does not corrupt the next one
		if _, err := w.to.Write([]byte{'\n'}); err != nil {
			w.failedLocked(lines, err)
			return false
		}
		w.torn = false
	}
	n, err := w.to.Write(lines)
	if err == nil {
		w.failing = false
		return true
	}
	n = min(max(n, 0), len(lines))
	w.torn = n > 0 && lines[n-1] != '\n'
	w.failedLocked(lines[n:], err)
	return false
}

func (w *Writer) failedLocked(rest []byte, err error) {
	w.lose(rest)
	if !w.failing {
		w.failing = true
		w.config.OnError(err)
	}
}

// reportLocked reports lines that were dropped since the last report.
func (w *Writer) reportLocked() {
	lost := w.lost.Load()
	if lost == w.reported || !w.reportedAt.IsZero() && time.Since(w.reportedAt) < reportInterval {
		return
	}
	line := w.config.OnLost(lost - w.reported)
	if !w.writeLocked(line) {
		w.lost.Add(-int64(bytes.Count(line, []byte{'\n'}))) // a failed report does not count as a dropped line
		return
	}
	w.reported, w.reportedAt = lost, time.Now()
}

// Lost returns the number of lines dropped since the start because the buffer was full or writing failed.
func (w *Writer) Lost() int64 { return w.lost.Load() }

// Reopen opens a new file with the same name, for log rotation after the old file was renamed. Every line is in one of the
// two files. If opening fails, the old file stays in use. Without Config.File it does nothing.
func (w *Writer) Reopen() error {
	if w.config.File == "" {
		return nil
	}
	f, err := openFile(w.config.File)
	if err != nil {
		return err
	}
	w.out.Lock()
	defer w.out.Unlock()
	if w.file == nil { // closed
		return f.Close()
	}
	old := w.file
	w.file, w.to, w.torn, w.failing = f, f, false, false
	return old.Close()
}

// Close writes the buffered lines and closes the file. It waits at most timeout for an output that blocks or has a slow
// reader; lines that are not written by then are dropped.
func (w *Writer) Close(timeout time.Duration) error {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return nil
	}
	w.closed = true
	running := w.running
	w.mu.Unlock()
	close(w.stop)
	deadline := time.Now().Add(timeout - timeout/10) // before Close times out, so that dropped lines are counted and reported
	ended := make(chan error, 1)
	go func() {
		if running {
			<-w.done
		}
		ended <- w.end(deadline)
	}()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case err := <-ended:
		return err
	case <-timer.C:
		return fmt.Errorf("logwriter: lines could not be written within %v", timeout)
	}
}

func (w *Writer) end(deadline time.Time) error {
	w.out.Lock()
	defer w.out.Unlock()
	w.timeout = time.Until(deadline)
	w.reportedAt = time.Time{}
	w.flushLocked()
	if w.file == nil {
		return nil
	}
	err := w.file.Close()
	w.file = nil
	return err
}
