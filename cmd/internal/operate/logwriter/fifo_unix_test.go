//go:build unix

package logwriter

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A FIFO is opened without a reader and receives the lines once there is one. While it is full, lines are dropped; Reopen
// does not wait for a reader, and Close not longer than its timeout.
func TestFIFO(t *testing.T) {
	name := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := Open(Config{File: name, Buffer: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(w, "first")
	reader, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if line, err := bufio.NewReaderSize(reader, 16).ReadString('\n'); line != "first\n" {
		t.Fatalf("the reader gets %q, %v", line, err)
	}
	line := strings.Repeat("x", 1023) + "\n"
	for range 512 { // more than a FIFO holds
		fmt.Fprint(w, line)
	}
	if err := w.Reopen(); err != nil {
		t.Error(err)
	}
	_ = w.Close(100 * time.Millisecond) // may or may not time out
	if w.Lost() == 0 {
		t.Error("no line was dropped: the FIFO was not full")
	}
}

// Close waits for a reader that is slower than the timeout of other writes.
func TestFIFOSlowReader(t *testing.T) {
	name := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := Open(Config{File: name, Buffer: 1 << 20, Delay: time.Hour}) // nothing is written before Close
	if err != nil {
		t.Fatal(err)
	}
	w.timeout = 1 // ns: no reader is fast enough
	reader, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	const lines = 4000 // of 8 bytes: less than one write of the Writer, more than the capacity of a FIFO
	for i := range lines {
		fmt.Fprintf(w, "%7d\n", i)
	}
	w.mu.Lock()
	w.waiting = append(w.waiting, strings.Repeat(strings.Repeat("x", 1023)+"\n", 256)...)
	w.mu.Unlock()
	closed := make(chan error, 1)
	go func() { closed <- w.Close(time.Minute) }()
	got, err := io.ReadAll(reader) // until the writer closes the FIFO
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(got), "\n"); n != lines+256 || <-closed != nil || w.Lost() != 0 {
		t.Errorf("%d lines were read, %d dropped", n, w.Lost())
	}
}

func TestNeitherFileNorFIFO(t *testing.T) {
	for _, name := range []string{t.TempDir(), "/dev/null", "/dev/zero"} {
		if _, err := Open(Config{File: name}); err == nil || !strings.Contains(err.Error(), "regular file nor a FIFO") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
