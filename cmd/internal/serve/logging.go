package serve

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/cmd/internal/operate/logging"
	"github.com/sluiceproject/sluice/cmd/internal/operate/logwriter"
	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/internal/plainfile"
	"github.com/sluiceproject/sluice/rules"
)

// serviceLog is the log of a service.
type serviceLog struct {
	*slog.Logger
	lines   *logwriter.Writer
	level   *slog.LevelVar // changed by the admin API
	timeout time.Duration  // of close

	mu   sync.Mutex // guards last
	last []func()   // called by exit
}

// openLog opens the log. Lines are written in the background, because a request that logs must not wait for the reader of
// standard error. If stderr is os.Stderr, the default loggers of the process, which libraries use, write to it too.
func openLog(cfg *config.Config, stderr io.Writer) *serviceLog {
	o := logging.Options{JSON: cfg.Logging.Format == "json"}
	_ = o.Level.UnmarshalText([]byte(cfg.Logging.Level)) // cannot fail: already checked
	l := &serviceLog{timeout: min(time.Second, cfg.Drain.Timeout/4)}
	l.lines = logwriter.NewLog(stderr, func(w io.Writer) *slog.Logger {
		log, _ := logging.New(w, o)
		return log
	})
	l.Logger, l.level = logging.New(l.lines, o)
	if stderr == io.Writer(os.Stderr) {
		slog.SetLogLoggerLevel(slog.LevelWarn) // level of lines from package log: warnings are sampled
		slog.SetDefault(l.Logger)
	}
	return l
}

// close writes the pending lines. It waits for a blocked output at most 1 s, and at most 25 % of the drain timeout.
func (l *serviceLog) close() { _ = l.lines.Close(l.timeout) }

// beforeExit adds a function that exit calls, such as one that flushes another log.
func (l *serviceLog) beforeExit(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = append(l.last, f)
}

// exit exits the process without a graceful shutdown. It writes the pending lines first.
func (l *serviceLog) exit(reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.last {
		f()
	}
	l.Error(reason)
	l.close()
	os.Exit(term.ExitFindings)
}

// logEvents are what is logged.
func logEvents(c *config.Logging, log *slog.Logger, set func() *rules.Set, address func(shard int) string) (sluice.Events, error) {
	if address == nil {
		address = func(int) string { return "" }
	}
	outage := logging.NewRare(log)
	e := sluice.Events{
		OnStoreError: func(_ context.Context, err error) { // too late, or not called because a circuit breaker is open
			outage.Warn("store unavailable: fail modes decide", "error", err)
		},
		OnShardUnavailable: func(_ context.Context, n int, err error) {
			log.Error("store breaker opened", "shard", n, "address", address(n), "error", breakerError(err))
		},
		OnForgiven: func(_ context.Context, t sluice.Take, n int64) {
			log.Warn("settlement not charged in full", "rule", t.Rule.Name, "forgiven", n)
		},
		OnShardRecovered: func(_ context.Context, n int) { log.Info("store breaker closed", "shard", n, "address", address(n)) },
	}
	if c.Denials == config.Off {
		return e, nil
	}
	o := logging.DenialLogOptions{
		PerSecond: int(c.DenialsPerSecond),
		Keys:      map[string]logging.Keys{"masked": logging.Masked, "plain": logging.Plain, "none": logging.None}[c.Keys],
		Parts:     func(r *sluice.Rule, key string) []rules.KeyPart { return set().KeyParts(r, key) },
	}
	if c.SecretFile != "" {
		var err error
		if o.Secret, err = plainfile.Read(c.SecretFile, maxSecret); err != nil {
			return e, fmt.Errorf("logging.secret_file: %w", err)
		}
		if len(o.Secret) < minSecretBytes {
			return e, fmt.Errorf("logging.secret_file: %s has %d bytes: write at least %d random ones, such as: openssl rand -hex 32",
				c.SecretFile, len(o.Secret), minSecretBytes)
		}
	}
	e.OnDenial = logging.NewDenialLog(log, o).Denied
	return e, nil
}

// minSecretBytes is the minimum length of a secret that cannot be guessed.
const minSecretBytes = 16
