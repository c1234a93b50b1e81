package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/config"
	"github.com/sluiceproject/sluice/internal/logging"
	"github.com/sluiceproject/sluice/rules"
)

func newLogger(c config.Logging, w io.Writer) (*slog.Logger, *slog.LevelVar) {
	o := logging.Options{JSON: c.Format == "json"}
	_ = o.Level.UnmarshalText([]byte(c.Level)) // one of its words
	return logging.New(w, o)
}

// logEvents are what is logged.
func (s *service) logEvents() (sluice.Events, error) {
	e := sluice.Events{
		StoreFailed: func(_ context.Context, err error) {
			s.log.Warn("the store did not answer in time: on_failure of the rules did", "error", err)
		},
		ServerAway: func(_ context.Context, n int, err error) {
			s.log.Error("the store does not answer: rules' on_failure does", "server", n, "error", err)
		},
		ServerBack: func(_ context.Context, n int) { s.log.Info("the store answers again", "server", n) },
	}
	c := &s.cfg.Logging
	if c.Denials == config.Off {
		return e, nil
	}
	o := logging.DenialOptions{
		PerSecond: int(c.DenialsPerSecond),
		Keys:      map[string]logging.Keys{"masked": logging.Masked, "plain": logging.Plain, "none": logging.None}[c.Keys],
		Parts:     func(r *sluice.Rule, key string) []rules.KeyPart { return s.rules().Parts(r, key) },
	}
	if c.SecretFile != "" {
		var err error
		if o.Secret, err = os.ReadFile(c.SecretFile); err != nil {
			return e, fmt.Errorf("logging.secret_file: %w", err)
		}
		if len(o.Secret) < leastSecret {
			return e, fmt.Errorf("logging.secret_file: %s has %d bytes: write at least %d that nobody can guess, such as of: openssl rand -hex 32",
				c.SecretFile, len(o.Secret), leastSecret)
		}
	}
	e.Denied = logging.NewDenials(s.log, o).Denied
	return e, nil
}

// leastSecret is so long that nobody guesses it.
const leastSecret = 16
