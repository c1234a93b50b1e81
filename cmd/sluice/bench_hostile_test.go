package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/cmd/internal/testenv/attacks"
	"github.com/sluiceproject/sluice/internal/testenv/tcptest"
)

// harmless fails the test if the output is large or contains control characters.
func harmless(t *testing.T, name, text string) {
	t.Helper()
	if len(text) > 64<<10 {
		t.Errorf("%s: the output has %d bytes", name, len(text))
	}
	for _, r := range text {
		if !unicode.IsPrint(r) && r != '\n' {
			t.Fatalf("%s: control character %q in the output %.500q", name, r, text)
		}
	}
}

// serveListener serves connections until the test ends.
func serveListener(t *testing.T, serve func(net.Listener)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go serve(l)
	return l.Addr().String()
}

// sluice bench reports the misbehaviour of a hostile server as errors, within its timeouts, and prints no control characters.
func TestBenchHostile(t *testing.T) {
	t.Parallel()
	replies := append([]string{"-ERR \x1b[2J\x1b]0;owned\x07\r\n", "+\x1b[31m\r\n", "*5\r\n:0\r\n:9\r\n:9\r\n:-1\r\n:-1\r\n"}, attacks.RedisReplies...)
	redis := tcptest.Serve(t, func(c net.Conn) {
		b := make([]byte, 4096)
		for {
			if _, err := c.Read(b); err != nil {
				return
			}
			if _, err := io.WriteString(c, replies[rand.IntN(len(replies))]); err != nil {
				return
			}
		}
	})
	silent := serveListener(t, func(l net.Listener) {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
		}
	})
	h1 := serveListener(t, attacks.ServeHTTP1)
	for name, args := range map[string][]string{
		"HTTP/1":          {"http://" + h1 + "/any", "-n", "100"},
		"endless headers": {"http://" + h1 + "/evil/headers", "-n", "4"},
		"1xx":             {"http://" + h1 + "/evil/1xx", "-n", "4"},
		"rls":             {"rls://" + serveListener(t, attacks.ServeHTTP2), "--domain", "d", "--descriptor", "a=b", "-n", "40"},
		"RESP":            {"redis://" + redis, "-n", "100"},
		"silent HTTP":     {"http://" + silent, "-n", "8"},
		"silent RESP":     {"redis://" + silent, "-n", "8"},
		"silent rls":      {"rls://" + silent, "--domain", "d", "--descriptor", "a=b", "-n", "8"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var stdout, stderr bytes.Buffer
			code := run(ctx, append([]string{"bench", "--concurrency", "8", "--timeout", "300ms"}, args...), &stdout, &stderr)
			if ctx.Err() != nil {
				t.Error("the command does not exit")
			}
			if code != term.ExitFine && code != term.ExitFindings && code != term.ExitWrong {
				t.Errorf("exit %d", code)
			}
			harmless(t, "standard output", stdout.String())
			harmless(t, "standard error", stderr.String())
			if code == term.ExitFine && !strings.Contains(stdout.String(), "rrors") {
				t.Errorf("no errors in the report:\n%s", &stdout)
			}
		})
	}
}

// sluice simulate skips lines that are not log lines, and prints no control characters.
func TestSimulateHostile(t *testing.T) {
	t.Parallel()
	const good = `192.0.2.1 - - [02/Jan/2026:15:04:05 +0000] "GET / HTTP/1.1" 200 5` + "\n"
	var noise bytes.Buffer
	r := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		noise.WriteString(attacks.Slip(good, r))
	}
	noise.WriteString(good)
	var keys strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&keys, "192.0.%d.%d - - [02/Jan/2026:15:04:05 +0000] \"GET /%d HTTP/1.1\" 200 5\n", i>>8, i&255, i)
	}
	for name, text := range map[string]string{
		"slips":         noise.String(),
		"escapes":       "192.0.2.1 - \x1b]0;owned\x07 [02/Jan/2026:15:04:05 +0000] \"GET /\x1b[2J HTTP/1.1\" 200 5\n\x1b[2J\x1b[31mfault\n" + good,
		"JSON escapes":  `{"time":"2026-01-02T15:04:05Z","method":"GET","path":"/\u001b[2J","client_ip":"\u001b]0;x\u0007","status":200}` + "\n\x9b31m\n" + good,
		"JSON depth":    strings.Repeat(`{"a":`, 10_000) + "\n" + good,
		"huge numbers":  `{"time":"2026-01-02T15:04:05Z","status":99999999999999999999,"duration_seconds":1e999}` + "\n" + good,
		"a long line":   strings.Repeat("x", 1<<20) + "\n" + good,
		"no line ends":  strings.Repeat("\x00", 1<<20),
		"times":         strings.ReplaceAll(good, "2026", "9999") + strings.ReplaceAll(good, "02/Jan", "99/Jan") + strings.ReplaceAll(good, "2026", "0001") + good,
		"back in time":  strings.ReplaceAll(good, "2026", "2190") + good + strings.ReplaceAll(good, "2026", "1970"),
		"requests":      strings.ReplaceAll(good, "GET / HTTP/1.1", strings.Repeat("G", 5000)) + strings.ReplaceAll(good, "GET / HTTP/1.1", "") + good,
		"no gzip":       "\x1f\x8b\x08\x00\x00\x00\x00\x00\xff\xff" + strings.Repeat("\xff", 1000),
		"many keys":     keys.String() + good,
		"only newlines": strings.Repeat("\n", 1<<16) + good,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "access.log")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, format := range []string{"text", "json"} {
				code, out, stderr := sluiceRun(t, "simulate", "--rules", "testdata/traffic/rules", "-o", format, file)
				if code != term.ExitFine && code != term.ExitFindings && code != term.ExitWrong {
					t.Errorf("exit %d", code)
				}
				harmless(t, format, out)
				harmless(t, "standard error", stderr)
				if strings.HasSuffix(text, good) && code == term.ExitWrong {
					t.Errorf("exit %d: %s", code, stderr)
				}
			}
		})
	}
}
