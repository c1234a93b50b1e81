package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Config is how a log is written.
type Config struct {
	File   string    // appended to, and made if need be
	Writer io.Writer // instead of a file, such as standard output
	Format Format
	Query  bool // write queries too; they may hold secrets
	// Buffer is how many bytes of lines may wait to be written. If there would be more, lines are dropped. The default is
	// 4 MiB, some ten thousand lines.
	Buffer int
	// Errors is told of lines that were lost and of files that cannot be written. Nil is nobody.
	Errors *slog.Logger
}

const (
	defaultBuffer = 4 << 20
	// Lines are written when there are this many bytes of them, or have waited this long.
	writeBytes = 64 << 10
	writeEvery = 100 * time.Millisecond
	// complainEvery is how often lost lines are worth a complaint.
	complainEvery = 10 * time.Second
	// closeWait is how long Close waits for a reader of standard output that does not read.
	closeWait = 5 * time.Second
)

// Log is an access log that is written to.
type Log struct {
	config  Config
	scratch sync.Pool // *[]byte
	lost    atomic.Int64

	mu      sync.Mutex // guards the fields below; never held while something is written
	waiting []byte     // lines
	spare   []byte     // the buffer that was written last
	running bool
	closed  bool

	some, many chan struct{} // wake the writer: there are lines; there are enough to write them now
	stop, done chan struct{}

	out     sync.Mutex // guards the fields below; held while something is written, and taken before mu
	to      io.Writer
	file    *os.File
	torn    bool // what was written last does not end with a line break
	told    int64
	toldAt  time.Time
	failing bool
}

// Open opens a log.
func Open(c Config) (*Log, error) {
	if (c.File == "") == (c.Writer == nil) {
		return nil, errors.New("accesslog: say where to write: either File or Writer")
	}
	if c.Buffer <= 0 {
		c.Buffer = defaultBuffer
	}
	if c.Errors == nil {
		c.Errors = slog.New(slog.DiscardHandler)
	}
	l := &Log{
		config: c, to: c.Writer, some: make(chan struct{}, 1), many: make(chan struct{}, 1),
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	l.scratch.New = func() any { b := make([]byte, 0, 1<<10); return &b }
	if c.File != "" {
		f, err := openFile(c.File)
		if err != nil {
			return nil, err
		}
		l.file, l.to = f, f
	}
	return l, nil
}

func openFile(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		return nil, fmt.Errorf("accesslog: %w", err)
	}
	return f, nil
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
	l.add(line)
	*scratch = line
	l.scratch.Put(scratch)
}

func (l *Log) add(line []byte) {
	l.mu.Lock()
	if l.closed || len(l.waiting)+len(line) > l.config.Buffer {
		l.mu.Unlock()
		l.lost.Add(1)
		return
	}
	before := len(l.waiting)
	l.waiting = append(l.waiting, line...)
	after := len(l.waiting)
	if !l.running {
		l.running = true
		go l.run()
	}
	l.mu.Unlock()
	if before == 0 {
		wake(l.some)
	}
	if before < writeBytes && after >= writeBytes {
		wake(l.many)
	}
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run writes lines until Close.
func (l *Log) run() {
	defer close(l.done)
	timer := time.NewTimer(writeEvery)
	defer timer.Stop()
	for {
		select {
		case <-l.some:
		case <-l.stop:
			return
		}
		timer.Reset(writeEvery)
		select {
		case <-timer.C:
		case <-l.many:
		case <-l.stop:
			return
		}
		l.flush()
	}
}

// flush writes what is waiting.
func (l *Log) flush() {
	l.out.Lock()
	defer l.out.Unlock()
	l.flushLocked()
}

func (l *Log) flushLocked() {
	l.mu.Lock()
	lines := l.waiting
	l.waiting, l.spare = l.spare[:0], nil
	l.mu.Unlock()
	l.writeLocked(lines)
	l.mu.Lock()
	l.spare = lines[:0]
	l.mu.Unlock()
	l.complainLocked()
}

func (l *Log) writeLocked(lines []byte) {
	if len(lines) == 0 {
		return
	}
	if l.torn { // so that half a line spoils no other
		if _, err := l.to.Write([]byte{'\n'}); err != nil {
			l.failedLocked(lines, err)
			return
		}
		l.torn = false
	}
	n, err := l.to.Write(lines)
	if err == nil {
		l.failing = false
		return
	}
	n = min(max(n, 0), len(lines))
	l.torn = n > 0 && lines[n-1] != '\n'
	l.failedLocked(lines[n:], err)
}

func (l *Log) failedLocked(rest []byte, err error) {
	l.lost.Add(int64(bytes.Count(rest, []byte{'\n'})))
	if !l.failing {
		l.failing = true
		l.config.Errors.Error("the access log cannot be written: requests go on, their lines are lost", "error", err)
	}
}

// complainLocked tells of lines that were lost since it last did.
func (l *Log) complainLocked() {
	lost := l.lost.Load()
	if lost == l.told || !l.toldAt.IsZero() && time.Since(l.toldAt) < complainEvery {
		return
	}
	l.config.Errors.Warn("lines of the access log were lost", "lost", lost-l.told)
	l.told, l.toldAt = lost, time.Now()
}

// Lost is how many lines were lost since the log was opened: there was no room for them, or writing them failed.
func (l *Log) Lost() int64 { return l.lost.Load() }

// Reopen goes on in a new file of the same name, which programs that rotate logs ask for after they have renamed the old
// one. Every line is in one of the two. If there can be no new file, the log stays with the old one.
func (l *Log) Reopen() error {
	if l.config.File == "" {
		return nil
	}
	f, err := openFile(l.config.File)
	if err != nil {
		return err
	}
	l.out.Lock()
	defer l.out.Unlock()
	if l.file == nil { // closed
		return f.Close()
	}
	old := l.file
	l.file, l.to, l.torn, l.failing = f, f, false, false
	if err := old.Close(); err != nil {
		return fmt.Errorf("accesslog: %w", err)
	}
	return nil
}

// Close writes what is waiting and closes the file. A standard output that nobody reads is given up after 5 s.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	running := l.running
	l.mu.Unlock()
	close(l.stop)
	ended := make(chan error, 1)
	go func() {
		if running {
			<-l.done
		}
		ended <- l.end()
	}()
	timer := time.NewTimer(closeWait)
	defer timer.Stop()
	select {
	case err := <-ended:
		return err
	case <-timer.C:
		return fmt.Errorf("accesslog: what is left could not be written within %v", closeWait)
	}
}

func (l *Log) end() error {
	l.out.Lock()
	defer l.out.Unlock()
	l.toldAt = time.Time{}
	l.flushLocked()
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	if err != nil {
		return fmt.Errorf("accesslog: %w", err)
	}
	return nil
}
