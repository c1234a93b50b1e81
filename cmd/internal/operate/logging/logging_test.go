package logging

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

// hostile contains values that clients send to forge lines, control terminals or break log readers.
var hostile = []string{
	"ada\nlevel=INFO msg=audit principal=root", "ada\r\nlevel=INFO", "a\rb", "\x1b[2J\x1b[1;31mred", "\x1b]0;title\x07", "\u009b31mC1", "\u0085next line",
	"\u2028line\u2029paragraph", "\u202eesrever\u2066", "\x00nul", "\x7fdel", "\xff\xfe no text", "\xc2", `"},{"msg":"forged"`, `" msg="forged`,
	"tab\tand\vvertical\ffeed", "\ufeffmark", "a b=c", strings.Repeat("ü", 5000), strings.Repeat("\x1b", 5000), "", "=", "\ufffd",
}

// checkLines fails if a log does not consist of want lines of printable text.
func checkLines(t *testing.T, what string, log []byte, want int, isJSON bool) {
	t.Helper()
	if n := bytes.Count(log, []byte("\n")); n != want || !bytes.HasSuffix(log, []byte("\n")) {
		t.Errorf("%s: %d lines, want %d:\n%s", what, n, want, log)
	}
	for line := range strings.Lines(string(log)) {
		line = strings.TrimSuffix(line, "\n")
		if !utf8.ValidString(line) {
			t.Errorf("%s: not text: %q", what, line)
		}
		if i := strings.IndexFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
			t.Errorf("%s: raw %q in %q", what, line[i:min(len(line), i+4)], line)
		}
		if len(line) > 40*maxBytes {
			t.Errorf("%s: a line of %d bytes", what, len(line))
		}
		if isJSON && !json.Valid([]byte(line)) {
			t.Errorf("%s: not JSON: %s", what, line)
		}
	}
}

type stringer string

func (s stringer) String() string { return string(s) }

// For any values, an event is one line without terminal control characters.
func TestOneLine(t *testing.T) {
	for _, isJSON := range []bool{false, true} {
		for _, text := range hostile {
			var b bytes.Buffer
			log, _ := New(&b, Options{JSON: isJSON})
			log.Info("m", "text", text, "error", errors.New(text), "stringer", stringer(text), "list", []string{text, "b"}, "any", struct{ A string }{text})
			log.With("w", text).WithGroup("g").Error("m", slog.Group("h", "x", text))
			slog.NewLogLogger(log.Handler(), slog.LevelError).Print("http: " + text) // as the standard library's servers do
			checkLines(t, text[:min(len(text), 20)], b.Bytes(), 3, isJSON)
			for _, forged := range []string{`"msg":"forged"`, ` msg="forged`, "\nlevel=INFO msg=audit"} {
				if strings.Contains(b.String(), forged) {
					t.Errorf("%q forges a line in %s", text, &b)
				}
			}
		}
	}
}

// Values are the same text in both formats.
func TestValues(t *testing.T) {
	args := []any{
		"addr", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80}, "nothing", nil, "wait", 1500 * time.Millisecond, "n", 3, "yes", true,
		"error", errors.New("a b"), "files",
		[]string{"a", "b"},
		"long", strings.Repeat("x", maxBytes+1),
	}
	long := strings.Repeat("x", maxBytes) + "…"
	for isJSON, want := range map[bool]string{
		false: `addr=127.0.0.1:80 nothing=<nil> wait=1.5s n=3 yes=true error="a b" files="[a b]" long=` + long + "\n",
		true:  `"addr":"127.0.0.1:80","nothing":null,"wait":"1.5s","n":3,"yes":true,"error":"a b","files":["a","b"],"long":"` + long + "\"}\n",
	} {
		var b bytes.Buffer
		log, _ := New(&b, Options{JSON: isJSON})
		log.Info("m", args...)
		if !strings.HasSuffix(b.String(), want) {
			t.Errorf("got  %swant …%s", &b, want)
		}
	}
}

// The level can be changed while the log is in use, also for existing child loggers.
func TestLevel(t *testing.T) {
	var b bytes.Buffer
	log, level := New(&b, Options{Level: slog.LevelWarn})
	child := log.With("a", 1)
	child.Info("first")
	level.Set(slog.LevelDebug)
	child.Debug("second")
	log.Info("third")
	level.Set(slog.LevelError)
	child.Warn("fourth")
	if log.Enabled(context.Background(), slog.LevelWarn) {
		t.Error("warnings are enabled at level error")
	}
	checkLines(t, "levels", b.Bytes(), 2, false)
	if !strings.Contains(b.String(), "second") || !strings.Contains(b.String(), "third") {
		t.Errorf("got %s", &b)
	}
}
