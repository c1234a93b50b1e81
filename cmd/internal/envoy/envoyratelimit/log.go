package envoyratelimit

import (
	"io"
	"log/slog"
	"strings"
)

// newLog returns a log in the reference's format, with its names of levels.
func newLog(w io.Writer, s *Settings) *slog.Logger {
	json := s.LogFormat == "json"
	options := &slog.HandlerOptions{
		Level: logLevels[s.LogLevel],
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) > 0 {
				return a
			}
			switch {
			case a.Key == slog.LevelKey:
				level := strings.ToLower(a.Value.String())
				if level == "warn" {
					level = "warning"
				}
				a.Value = slog.StringValue(level)
			case a.Key == slog.TimeKey && json:
				a.Key = "@timestamp"
			case a.Key == slog.MessageKey && json:
				a.Key = "@message"
			}
			return a
		},
	}
	if json {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

var logLevels = map[string]slog.Level{
	"trace": slog.LevelDebug, "debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn,
	"warning": slog.LevelWarn, "error": slog.LevelError, "fatal": slog.LevelError, "panic": slog.LevelError,
}
