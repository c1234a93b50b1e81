package logwriter

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pipe blocks until it is opened and then fails a number of writes.
type pipe struct {
	open  chan struct{}
	fails int
	bytes.Buffer
}

func (p *pipe) Write(b []byte) (int, error) {
	<-p.open
	if p.fails > 0 {
		p.fails--
		return 0, errors.New("broken")
	}
	return p.Buffer.Write(b)
}

// A logger with a blocked output never blocks. Once the output works again, written and reported dropped lines add up to
// all lines, also if the first writes fail, that of the report included.
func TestLog(t *testing.T) {
	for fails := range 4 {
		synctest.Test(t, func(t *testing.T) {
			out := &pipe{open: make(chan struct{}), fails: fails}
			text := func(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }
			w := NewLog(out, text)
			log := text(w)
			const all = 20_000
			for i := range all {
				log.Info("line", "i", i)
				if i%1000 == 0 {
					synctest.Wait()
				}
			}
			close(out.open)
			synctest.Wait()
			for i := range 5 { // one by one, so that some of them fail
				log.Info("line", "i", all+i)
				synctest.Wait()
			}
			if err := w.Close(time.Second); err != nil {
				t.Fatal(err)
			}
			var told, lost int64
			for line := range strings.Lines(out.String()) {
				if _, after, ok := strings.Cut(line, " dropped_lines="); ok {
					var n int64
					fmt.Sscan(after, &n)
					told += n
				}
			}
			lost = w.Lost()
			if got := int64(strings.Count(out.String(), "msg=line ")); told != lost || got+lost != all+5 || lost == 0 {
				t.Errorf("%d failed writes: %d lines of %d, %d dropped, %d reported", fails, got, all+5, lost, told)
			}
		})
	}
}

// Close waits for a blocked output until its timeout.
func TestCloseTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &pipe{open: make(chan struct{})}
		w := New(Config{Output: out})
		fmt.Fprintln(w, "line")
		began := time.Now()
		if err := w.Close(time.Second); err == nil || time.Since(began) != time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		close(out.open)
	})
}
