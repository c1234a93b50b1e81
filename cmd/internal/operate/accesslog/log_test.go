package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/operate/logwriter"
)

// lines reads all records of a log and fails on invalid lines.
func lines(t *testing.T, log string) (all []Record) {
	t.Helper()
	for line := range strings.Lines(log) {
		var r Record
		if err := ParseJSON(line, &r); err != nil {
			t.Errorf("%q: %v", line, err)
		}
		all = append(all, r)
	}
	return all
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// During concurrent writes and repeated rotation, each line is in exactly one file.
func TestReopen(t *testing.T) {
	file := filepath.Join(t.TempDir(), "access.log")
	l, err := Open(Config{Lines: logwriter.Config{File: file, Buffer: 64 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	const writers, each, rotations = 4, 500, 10
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range each {
				l.Write(&Record{Time: time.Now(), Method: "GET", Path: fmt.Sprintf("/%d/%d", w, i)})
			}
		})
	}
	for i := range rotations {
		if err := errors.Join(os.Rename(file, fmt.Sprint(file, ".", i)), l.Reopen()); err != nil {
			t.Fatal(err)
		}
	}
	all.Wait()
	if err := errors.Join(l.Close(), l.Close()); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	for i := range rotations {
		log.WriteString(read(t, fmt.Sprint(file, ".", i)))
	}
	log.WriteString(read(t, file))
	seen := map[string]int{}
	for _, r := range lines(t, log.String()) {
		seen[r.Path]++
	}
	if len(seen) != writers*each || l.Dropped() != 0 {
		t.Errorf("%d lines of %d, %d dropped", len(seen), writers*each, l.Dropped())
	}
	for path, n := range seen {
		if n != 1 {
			t.Errorf("%s %d times", path, n)
		}
	}
	l.Write(&Record{})
	if l.Dropped() != 1 || l.Reopen() != nil {
		t.Errorf("after Close: %d dropped", l.Dropped())
	}
}

// If no new file can be created, the old one stays in use.
func TestReopenFails(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "logs", "access.log")
	if err := os.Mkdir(filepath.Dir(file), 0o777); err != nil {
		t.Fatal(err)
	}
	l, err := Open(Config{Lines: logwriter.Config{File: file}})
	if err != nil {
		t.Fatal(err)
	}
	moved := filepath.Join(dir, "moved")
	if err := os.Rename(filepath.Dir(file), moved); err != nil {
		t.Fatal(err)
	}
	if err := l.Reopen(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("reopening in a missing directory: %v", err)
	}
	l.Write(&Record{Time: time.Now(), Path: "/"})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if n := len(lines(t, read(t, filepath.Join(moved, "access.log")))); n != 1 {
		t.Errorf("%d lines", n)
	}
}

// gate is a writer that blocks until it is opened.
type gate struct {
	open chan struct{}
	bytes.Buffer
}

func (g *gate) Write(b []byte) (int, error) {
	<-g.open
	return g.Buffer.Write(b)
}

// With a blocked output lines are dropped, counted and reported, and Write does not block.
func TestNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &gate{open: make(chan struct{})}
		var complaints bytes.Buffer
		l, err := Open(Config{Lines: logwriter.Config{Output: out, Buffer: 10_000}, Errors: slog.New(slog.NewTextHandler(&complaints, nil))})
		if err != nil {
			t.Fatal(err)
		}
		const all = 1000
		for range all {
			l.Write(&Record{Time: time.Now(), Path: "/"})
			<-time.After(time.Millisecond) // the clock of a synctest bubble advances only when the writer blocks too
		}
		close(out.open)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		got := len(lines(t, out.String()))
		if got == 0 || got == all || got+int(l.Dropped()) != all {
			t.Errorf("%d lines of %d, %d dropped", got, all, l.Dropped())
		}
		if !strings.Contains(complaints.String(), fmt.Sprint("dropped_lines=", l.Dropped())) {
			t.Errorf("%d dropped, reports:\n%s", l.Dropped(), &complaints)
		}
	})
}

// Close does not wait forever for a blocked output.
func TestCloseGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &gate{open: make(chan struct{})}
		l, err := Open(Config{Lines: logwriter.Config{Output: out}})
		if err != nil {
			t.Fatal(err)
		}
		l.Write(&Record{Time: time.Now(), Path: "/"})
		began := time.Now()
		if err := l.Close(); err == nil || time.Since(began) != closeTimeout {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		close(out.open)
	})
}

// A line is written after writeDelay, many lines at once.
func TestWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &gate{open: make(chan struct{})}
		close(out.open)
		l, err := Open(Config{Lines: logwriter.Config{Output: out}})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		l.Write(&Record{Time: time.Now(), Path: "/"})
		<-time.After(writeDelay)
		synctest.Wait()
		if n := len(lines(t, out.String())); n != 1 {
			t.Errorf("%d lines after %v", n, writeDelay)
		}
		const writeBytes = 64 << 10 // as in logwriter
		for range 2 * writeBytes / 100 {
			l.Write(&Record{Time: time.Now(), Path: "/"})
		}
		synctest.Wait()
		if out.Len() < writeBytes {
			t.Errorf("only %d bytes were written at once", out.Len())
		}
	})
}

// disk fails after a number of bytes, as a full disk does, until space is freed.
type disk struct {
	room int
	bytes.Buffer
}

func (d *disk) Write(b []byte) (int, error) {
	n := min(len(b), d.room)
	d.room -= n
	d.Buffer.Write(b[:n])
	if n < len(b) {
		return n, errors.New("no space left on device")
	}
	return n, nil
}

// On a full disk only the lines that do not fit are dropped.
func TestFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &disk{room: 250}
		var complaints bytes.Buffer
		l, err := Open(Config{Lines: logwriter.Config{Output: out}, Errors: slog.New(slog.NewTextHandler(&complaints, nil))})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 10 {
			if i == 7 {
				synctest.Wait()
				out.room = 1 << 20
			}
			l.Write(&Record{Time: time.Now(), Path: fmt.Sprint("/", i)})
			<-time.After(2 * writeDelay)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		var paths []string
		bad := 0
		for line := range strings.Lines(out.String()) {
			var r Record
			if ParseJSON(line, &r) != nil {
				bad++
				continue
			}
			paths = append(paths, r.Path)
		}
		if bad != 1 || strings.Join(paths, "") != "/0/1/7/8/9" || l.Dropped() != 5 {
			t.Errorf("%d invalid lines, valid ones %v, %d dropped", bad, paths, l.Dropped())
		}
		if n := strings.Count(complaints.String(), "no space left"); n != 1 {
			t.Errorf("%d reports:\n%s", n, &complaints)
		}
	})
}

func TestOpen(t *testing.T) {
	for _, c := range []logwriter.Config{{}, {File: "a", Output: io.Discard}, {File: filepath.Join(t.TempDir(), "none", "access.log")}} {
		if l, err := Open(Config{Lines: c}); err == nil {
			t.Errorf("%+v is accepted: %v", c, l.Close())
		}
	}
	l, err := Open(Config{Lines: logwriter.Config{Output: io.Discard}})
	if err == nil {
		err = errors.Join(l.Reopen(), l.Close())
	}
	if err != nil {
		t.Error(err)
	}
}

func TestAllocations(t *testing.T) {
	l, err := Open(Config{Lines: logwriter.Config{Output: io.Discard}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r := full()
	if n := testing.AllocsPerRun(1000, func() { l.Write(&r) }); n > 1 {
		t.Errorf("%v allocations a line", n)
	}
}

func BenchmarkWrite(b *testing.B) {
	for name, format := range map[string]Format{"json": JSON, "combined": Combined} {
		b.Run(name, func(b *testing.B) {
			l, err := Open(Config{Lines: logwriter.Config{Output: io.Discard}, Format: format})
			if err != nil {
				b.Fatal(err)
			}
			r := full()
			b.ReportAllocs()
			for b.Loop() {
				l.Write(&r)
			}
			if err := l.Close(); err != nil || l.Dropped() > 0 {
				b.Fatal(err, l.Dropped())
			}
		})
	}
}

func BenchmarkRead(b *testing.B) {
	r := full()
	line := string(AppendJSON(nil, &r, true))
	b.ReportAllocs()
	for b.Loop() {
		if err := ParseJSON(line, &r); err != nil {
			b.Fatal(err)
		}
	}
}
