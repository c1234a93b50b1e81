package term_test

import (
	"testing"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/term"
)

func TestDuration(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0s": 0, "500ms": 500 * time.Millisecond, "1m": time.Minute, "1h": time.Hour, "1h30m": 90 * time.Minute,
		"7d": 7 * 24 * time.Hour, "1d1s": 24*time.Hour + time.Second, "10m": 10 * time.Minute,
		"1m0.5s": time.Minute + 500*time.Millisecond,
	} {
		if got := term.Duration(d); got != want {
			t.Errorf("Duration(%v) = %s, want %s", d, got, want)
		}
	}
}
