package logging

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rules"
)

// Many errors with the same message are a few lines that contain their number. Other messages and level info are written.
func TestFloodOfErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		log, _ := New(&b, Options{JSON: true})
		errorsSeen := 10_000
		if os.Getenv("SLUICE_SOAK") != "" {
			errorsSeen = 100_000
		}
		var callers sync.WaitGroup
		for c := range 10 {
			callers.Go(func() {
				for i := range errorsSeen / 10 {
					log.With("c", c).Error("store unavailable", "error", errors.New(fmt.Sprint("timeout ", i)))
					<-time.After(100 * time.Second / time.Duration(errorsSeen/10))
				}
			})
		}
		callers.Wait()
		lines := bytes.Count(b.Bytes(), []byte("\n"))
		if lines > 100 || lines < maxBurst+15 {
			t.Errorf("%d errors in %d lines", errorsSeen, lines)
		}
		<-time.After(complaintInterval)
		log.Error("store unavailable")
		told := lines + 1
		for line := range strings.Lines(b.String()) {
			var fields struct{ Suppressed int }
			if err := json.Unmarshal([]byte(line), &fields); err != nil {
				t.Fatal(err)
			}
			told += fields.Suppressed
		}
		if told != errorsSeen+1 {
			t.Errorf("the lines report %d errors, want %d", told, errorsSeen+1)
		}

		b.Reset()
		log.Warn("another")
		for range 1000 {
			log.Info("audit")
		}
		if n := bytes.Count(b.Bytes(), []byte("\n")); n != 1001 {
			t.Errorf("%d lines, want a warning and 1000 of level info", n)
		}
	})
}

// Messages that differ each time, such as those with client addresses, are bounded too.
func TestFloodOfMessages(t *testing.T) {
	var b bytes.Buffer
	log, _ := New(&b, Options{Level: slog.LevelDebug})
	for i := range 20_000 {
		log.Debug(fmt.Sprint("TLS handshake error from client ", i))
	}
	if n := bytes.Count(b.Bytes(), []byte("\n")); n > slots*(maxBurst+1) {
		t.Errorf("%d lines", n)
	}
}

// While one message is suppressed, others are written. A few may share its hash.
func TestOthersAreHeard(t *testing.T) {
	var b bytes.Buffer
	log, _ := New(&b, Options{})
	for range 1000 {
		log.Error("flood")
	}
	b.Reset()
	for i := range 10 {
		log.Error(fmt.Sprint("other ", i))
	}
	if n := bytes.Count(b.Bytes(), []byte("\n")); n < 5 {
		t.Errorf("%d of 10 other messages are written", n)
	}
}

// denials returns a limiter that logs denials of a rule with 1 request per hour.
func denials(t *testing.T, log *slog.Logger, o DenialLogOptions) *sluice.Limiter {
	t.Helper()
	if o.Parts == nil {
		o.Parts = func(_ *sluice.Rule, key string) []rules.KeyPart {
			return []rules.KeyPart{{Name: "user", Value: key}, {Name: "path", Value: "/x"}}
		}
	}
	return sluice.Must(sluice.New(memstore.New(), "posts", sluice.PerHour(1), sluice.WithEvents(sluice.Events{OnDenial: NewDenialLog(log, o).Denied})))
}

func allow(t *testing.T, l *sluice.Limiter, key string) bool {
	t.Helper()
	d, err := l.Allow(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	return d.Allowed
}

func TestDenials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for keys, want := range map[Keys]string{
			Masked: `key="user=~4b099d8d, path=~0d0b136d" `, Plain: `key="user=ada, path=/x" `, None: "",
		} {
			var b bytes.Buffer
			log, level := New(&b, Options{})
			l := denials(t, log, DenialLogOptions{PerSecond: 1, Keys: keys, Secret: []byte("s")})
			if allow(t, l, "ada"); b.Len() > 0 {
				t.Errorf("an allowed request is logged: %s", &b)
			}
			for range 5 {
				allow(t, l, "ada")
			}
			<-time.After(time.Second)
			allow(t, l, "ada")
			level.Set(slog.LevelWarn)
			<-time.After(time.Second)
			allow(t, l, "ada")
			first := "level=INFO msg=denied rule=posts " + want + `limit=1/h retry_after=1h0m0s source=store` + "\n"
			second := strings.Replace(first, "1h0m0s source=store", "59m59s source=store suppressed=4", 1)
			lines := strings.SplitAfter(b.String(), "\n")
			if len(lines) != 3 || !strings.HasSuffix(lines[0], first) || !strings.HasSuffix(lines[1], second) {
				t.Errorf("got\n%swant\n%s%s", &b, first, second)
			}
		}
	})
}

// Many denials are at most PerSecond lines per second, which together report all of them.
func TestFloodOfDenials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		log, _ := New(&b, Options{JSON: true})
		l := denials(t, log, DenialLogOptions{PerSecond: 5})
		for range 10 {
			for i := range 1000 {
				allow(t, l, fmt.Sprint(i%10))
			}
			<-time.After(time.Second)
		}
		if n := bytes.Count(b.Bytes(), []byte("\n")); n != 50 {
			t.Errorf("%d lines in 10 s, want 5 a second", n)
		}
	})
}

// Lines contain no values of clients by default, and with Plain a value cannot forge a line.
func TestDenialsOfHostileKeys(t *testing.T) {
	const canary = "sk_live_canary"
	for _, isJSON := range []bool{false, true} {
		for _, keys := range []Keys{Masked, Plain, None} {
			for _, text := range append([]string{"~" + canary}, hostile...) {
				var b bytes.Buffer
				log, _ := New(&b, Options{JSON: isJSON})
				l := denials(t, log, DenialLogOptions{PerSecond: 1, Keys: keys, Parts: func(*sluice.Rule, string) []rules.KeyPart {
					return []rules.KeyPart{{Name: "user", Value: text + canary}, {Name: "path", Value: text}}
				}})
				allow(t, l, canary)
				allow(t, l, canary)
				checkLines(t, text[:min(len(text), 20)], b.Bytes(), 1, isJSON)
				if len(text) > valueBytes && len(b.String()) > 6*2*valueBytes+200 {
					t.Errorf("%d bytes of a long value are logged", b.Len())
				}
				if keys != Plain && strings.Contains(b.String(), canary) {
					t.Errorf("the key is in %s", &b)
				}
			}
		}
	}
}

// Long values are truncated.
func TestLongKeys(t *testing.T) {
	var b bytes.Buffer
	log, _ := New(&b, Options{})
	l := denials(t, log, DenialLogOptions{Keys: Plain, Parts: func(*sluice.Rule, string) []rules.KeyPart {
		return []rules.KeyPart{{Name: "user", Value: strings.Repeat("x", valueBytes+1)}}
	}})
	allow(t, l, "k")
	allow(t, l, "k")
	if want := `key="user=` + strings.Repeat("x", valueBytes) + `…" `; !strings.Contains(b.String(), want) {
		t.Errorf("got %s, want %s", &b, want)
	}
}

// Digests depend on the secret, so that values cannot be guessed from them.
func TestMask(t *testing.T) {
	mask := func(secret, name, value string) string {
		return NewDenialLog(slog.New(slog.DiscardHandler), DenialLogOptions{Secret: []byte(secret)}).mask(name, value)
	}
	seen := map[string]bool{}
	for _, m := range []string{mask("s", "ip", "a"), mask("t", "ip", "a"), mask("s", "user", "a"), mask("s", "ip", "b"), mask("", "ip", "a"), mask("", "ip", "a")} {
		if seen[m] || len(m) != 9 {
			t.Errorf("%s, %v", m, seen)
		}
		seen[m] = true
	}
	if first, second := mask("s", "ip", "a"), mask("s", "ip", "a"); first != second {
		t.Errorf("two processes with the same secret write %s and %s", first, second)
	}
}

// Allowed requests and omitted lines do not allocate.
func TestDenialsCost(t *testing.T) {
	log, _ := New(io.Discard, Options{})
	l := denials(t, log, DenialLogOptions{PerSecond: 1})
	plenty := sluice.Must(sluice.New(memstore.New(), "p", sluice.PerHour(1_000_000), sluice.WithEvents(sluice.Events{
		OnDenial: func(context.Context, sluice.Take, sluice.Decision) { t.Error("called for an allowed request") },
	})))
	for range 3 {
		allow(t, l, "ada")
	}
	quiet, _ := New(io.Discard, Options{Level: slog.LevelWarn})
	silent := denials(t, quiet, DenialLogOptions{Parts: func(*sluice.Rule, string) []rules.KeyPart {
		t.Error("a key is read for a line that is not written")
		return nil
	}})
	for range 3 {
		allow(t, silent, "ada")
	}
	if n := testing.AllocsPerRun(1000, func() { allow(t, plenty, "ada") }); n != 0 {
		t.Errorf("allowed: %v allocations", n)
	}
	if n := testing.AllocsPerRun(1000, func() { allow(t, l, "ada") }); n != 0 {
		t.Errorf("omitted: %v allocations", n)
	}
}
