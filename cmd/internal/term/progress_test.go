package term

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Long work prints its progress every few seconds, short work does not.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := NewProgress(&out, "sluice simulate", "request")
		after := func(d time.Duration, read, total int64) string {
			<-time.After(d)
			out.Reset()
			p.Report(1_000_000, read, total)
			return out.String()
		}
		for _, c := range []struct {
			wait        time.Duration
			read, total int64
			want        string
		}{
			{time.Second, 1 << 20, 4 << 20, ""},
			{4 * time.Second, 1 << 20, 4 << 20, "sluice simulate: 25 %, 1,000,000 requests, 200,000/s, 15s left\n"},
			{4 * time.Second, 2 << 20, 4 << 20, ""},
			{time.Second, 2 << 20, 0, "sluice simulate: 1,000,000 requests, 100,000/s, 2 MiB read\n"},
		} {
			if got := after(c.wait, c.read, c.total); got != c.want {
				t.Errorf("after %v: got %q, want %q", c.wait, got, c.want)
			}
		}
		if out.Reset(); true {
			p.End()
		}
		if out.Len() > 0 {
			t.Errorf("End printed %q without a terminal", &out)
		}

		bar := NewProgress(&out, "sluice simulate", "request")
		bar.terminal = true
		p = bar
		if got := after(progressWait/2, 1, 4); got != "" {
			t.Errorf("a bar is drawn at once: %q", got)
		}
		if got := after(progressWait, 1, 4); !strings.Contains(got, "[######..................]  25 %") || strings.Contains(got, "\n") {
			t.Errorf("bar: %q", got)
		}
		if got := after(progressBar/2, 2, 4); got != "" {
			t.Errorf("the bar is redrawn too often: %q", got)
		}
		p.End()
		if !strings.HasSuffix(out.String(), "\r\x1b[K") {
			t.Errorf("the bar stays: %q", &out)
		}
	})
}
