// Package logging writes logs that people and machines can trust, whatever clients send and however much fails: one event
// is one line, without control characters; the same complaint is not written thousands of times; and whose requests were
// denied is not told unless asked for.
//
// Lines of level info are never left out, so that what must be kept, such as who changed what, belongs there.
package logging

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Options are how a log is written.
type Options struct {
	JSON  bool // one object a line; else text, key=value
	Level slog.Level
}

// New returns a log, and the level that it is written at, which may be changed at any time.
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

// maxBytes bounds each value. The longest that are ours are stacks of what went wrong.
const maxBytes = 2 << 10

// plain has values be text as people write it, the same in both formats: durations, addresses and errors too.
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

// cut shortens a text to at most so many bytes, and marks it.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most] + "…"
}

// escape writes out what slog may leave as it is and a terminal may obey: DEL in both formats; in JSON the controls above
// it, marks that change the direction of text, and bytes that are no text. Controls below the space are left to slog.
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
