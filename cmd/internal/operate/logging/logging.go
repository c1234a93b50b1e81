// Package logging writes logs that are safe for people and machines, whatever clients send and however much fails: one event
// is one line without control characters, repeated warnings and errors are sampled, and keys of denied requests are masked
// by default.
//
// Lines of level info are never sampled. Records that must be complete, such as the audit log, have this level.
package logging

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Options configure a log.
type Options struct {
	JSON  bool // one object per line; otherwise text: key=value
	Level slog.Level
}

// New returns a logger and its level, which may be changed at any time.
func New(w io.Writer, o Options) (*slog.Logger, *slog.LevelVar) {
	level := new(slog.LevelVar)
	level.Set(o.Level)
	return slog.New(Sampled(writer(w, o.JSON, level))), level
}

func writer(w io.Writer, json bool, level slog.Leveler) slog.Handler {
	o := &slog.HandlerOptions{Level: level, ReplaceAttr: plain}
	if json {
		return slog.NewJSONHandler(w, o)
	}
	return slog.NewTextHandler(w, o)
}

// maxBytes is the maximum size of a value. The longest values of Sluice itself are stack traces.
const maxBytes = 2 << 10

// plain converts values, such as durations, addresses and errors, to the same text in both formats.
func plain(_ []string, a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindString:
		a.Value = slog.StringValue(text(a.Value.String()))
	case slog.KindDuration:
		a.Value = slog.StringValue(a.Value.String())
	case slog.KindAny:
		switch v := a.Value.Any().(type) {
		case nil, slog.Level:
		case []string:
			all := make([]string, len(v))
			for i := range v {
				all[i] = text(v[i])
			}
			a.Value = slog.AnyValue(all)
		default:
			a.Value = slog.StringValue(text(fmt.Sprint(v)))
		}
	}
	return a
}

func text(s string) string { return escape(cut(s, maxBytes)) }

// cut truncates s to at most most bytes and then appends an ellipsis.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most] + "…"
}

// escape escapes characters that slog does not escape and that control terminals: DEL in both formats; in JSON also C1
// controls, marks that change the direction of text, and invalid UTF-8. slog escapes the C0 controls.
func escape(s string) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r >= 0x7f && !unicode.IsPrint(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
