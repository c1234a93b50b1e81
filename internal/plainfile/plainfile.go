// Package plainfile reads files that a service depends on. A FIFO, a device, a socket or a file on a hanging server
// never blocks the caller: anything but a regular file, after links are followed, is an error, and reads are bounded in
// size and time.
package plainfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"
)

// ErrTooLarge is wrapped by errors about files that exceed the caller's maximum size.
var ErrTooLarge = errors.New("the file is too large")

// Timeout is the maximum duration of a read.
const Timeout = 10 * time.Second

// Open opens a regular file for reading. It does not block, not even on a FIFO without a writer.
func Open(path string) (*os.File, error) {
	f, err := open(path)
	if err != nil {
		return nil, Explain(path, err)
	}
	return f, nil
}

func open(path string) (*os.File, error) {
	info, err := os.Stat(path) // before opening, because opening a device can have side effects
	if err != nil {
		return nil, err
	}
	if err := regular(path, info); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err = f.Stat(); err == nil { // the file may have been replaced
		err = regular(path, info)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Check returns an error unless the path leads to a regular file, for files that other libraries read.
func Check(path string) error {
	f, err := Open(path)
	if err != nil {
		return err
	}
	return f.Close()
}

func regular(path string, info fs.FileInfo) error {
	if info.Mode().IsRegular() {
		return nil
	}
	kind := "not a regular file"
	switch mode := info.Mode(); {
	case mode.IsDir():
		kind = "a directory"
	case mode&fs.ModeNamedPipe != 0:
		kind = "a FIFO"
	case mode&fs.ModeSocket != 0:
		kind = "a socket"
	case mode&fs.ModeDevice != 0:
		kind = "a device"
	}
	return &fs.PathError{Op: "open", Path: path, Err: fmt.Errorf("is %s: name a regular file", kind)}
}

// reading contains a mutex for each path that is being read, so that a file that hangs occupies one goroutine and not
// one per attempt.
var reading sync.Map // of chan struct{}, by path

// Read reads a regular file of at most most bytes.
func Read(path string, most int64) ([]byte, error) {
	lock, _ := reading.LoadOrStore(path, make(chan struct{}, 1))
	turn := lock.(chan struct{})
	timer := time.NewTimer(Timeout)
	defer timer.Stop()
	select {
	case turn <- struct{}{}:
	case <-timer.C:
		return nil, Explain(path, timeout(path))
	}
	done := make(chan result, 1)
	go func() {
		defer func() { <-turn }()
		data, err := read(path, most)
		done <- result{data, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			return nil, Explain(path, r.err)
		}
		return r.data, nil
	case <-timer.C:
		return nil, Explain(path, timeout(path))
	}
}

func timeout(path string) error {
	return &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("no result within %v: %w", Timeout, os.ErrDeadlineExceeded)}
}

type result struct {
	data []byte
	err  error
}

func read(path string, most int64) ([]byte, error) {
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAll(path, f, most)
}

func readAll(path string, r io.Reader, most int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(data)) > most {
		err = &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("%w: more than %d bytes", ErrTooLarge, most)}
	}
	if err != nil {
		return nil, err
	}
	return data, nil
}

// ReadStream reads a file of any kind, for commands: a pipe, standard input, or a regular file. It returns when the
// context ends; the pending read then continues in the background.
func ReadStream(ctx context.Context, path string, most int64) ([]byte, error) {
	r, err := OpenStream(ctx, path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	data, err := readAll(path, Interruptible(ctx, r), most)
	return data, Explain(path, err)
}

// OpenStream opens a file of any kind. Opening a FIFO waits for a writer, or for the end of the context.
func OpenStream(ctx context.Context, path string) (*os.File, error) {
	type opened struct {
		f   *os.File
		err error
	}
	done := make(chan opened, 1)
	go func() {
		f, err := os.Open(path)
		done <- opened{f, err}
	}()
	select {
	case o := <-done:
		return o.f, Explain(path, o.err)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Interruptible returns a reader whose reads end with the context. A pending read then continues in the background, and
// its data is lost.
func Interruptible(ctx context.Context, r io.Reader) io.Reader {
	return &interruptible{ctx: ctx, r: r}
}

type interruptible struct {
	ctx context.Context
	r   io.Reader
	buf []byte
}

func (i *interruptible) Read(p []byte) (int, error) {
	if err := i.ctx.Err(); err != nil {
		return 0, context.Cause(i.ctx)
	}
	if len(i.buf) < len(p) {
		i.buf = make([]byte, len(p)) // not p, which the caller reuses after the context has ended
	}
	type count struct {
		n   int
		err error
	}
	done := make(chan count, 1)
	buf := i.buf[:len(p)]
	go func() {
		n, err := i.r.Read(buf)
		done <- count{n, err}
	}()
	select {
	case c := <-done:
		return copy(p, buf[:c.n]), c.err
	case <-i.ctx.Done():
		return 0, context.Cause(i.ctx)
	}
}
