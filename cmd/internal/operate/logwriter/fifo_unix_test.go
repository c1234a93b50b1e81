//go:build unix

package logwriter

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A FIFO is opened without a reader and gets the lines once there is one. While it is full, lines are lost, and neither
// Reopen nor Close waits for a reader.
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
	if err := w.Close(10 * time.Second); err != nil {
		t.Error(err)
	}
	if w.Lost() == 0 {
		t.Error("no line was lost: the FIFO was not full")
	}
}

func TestNeitherFileNorFIFO(t *testing.T) {
	for _, name := range []string{t.TempDir(), "/dev/null", "/dev/zero"} {
		if _, err := Open(Config{File: name}); err == nil || !strings.Contains(err.Error(), "regular file or a FIFO") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
