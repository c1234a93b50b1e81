package stores

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/cmd/internal/pemfile"
	"github.com/sluiceproject/sluice/memcachestore"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/redisstore"
)

// Opened is an open store with its functions for the service.
type Opened struct {
	sluice.Store
	Options   []sluice.Option             // options of the limiter
	Run       func(ctx context.Context)   // runs in the background until the context ends
	Close     func()                      // closes connections
	Save      func() error                // writes the snapshot on shutdown; nil: no snapshot
	Instances func() int                  // number of instances that share the store; 0: unknown
	Servers   func() int                  // number of shards of the store; nil: not a remote store
	Server    func(shard int) string      // address of a shard's server; "": unknown; nil: not a remote store
	Ping      func(context.Context) error // checks the store; nil: it is in memory
}

// Open opens the configured store. An unavailable server is not an error: the rules' fail modes apply until it is
// available. With dry set, Open only checks for errors: it neither connects nor writes, and returns a store in memory
// instead of an unopened remote store.
func Open(c *config.Store, log *slog.Logger, dry bool) (Opened, error) {
	o := Opened{
		Options: []sluice.Option{sluice.WithStoreTimeout(c.Timeout)}, Run: func(context.Context) {}, Close: func() {},
		Instances: func() int { return max(1, int(c.Instances)) },
	}
	err := o.open(c, log, dry)
	if o.Store == nil {
		o.Store = memstore.New()
	}
	o.askRemote(c)
	return o, err
}

func (o *Opened) open(c *config.Store, log *slog.Logger, dry bool) error {
	secure, err := pemfile.Client(c.TLS.CAFile, c.TLS.CertFile, c.TLS.KeyFile)
	if err != nil {
		return storeError(err)
	}
	switch c.Kind {
	case config.Redis:
		err = o.openRedis(c, secure, log, dry)
	case config.Memcached:
		err = o.openMemcached(c, secure, log, dry)
	default:
		err = o.openMemory(c, dry)
	}
	if err != nil {
		return storeError(err)
	}
	return nil
}

func (o *Opened) openRedis(c *config.Store, secure *tls.Config, log *slog.Logger, dry bool) error {
	cfg := redisstore.Config{URL: c.URL, PasswordFile: c.PasswordFile, TLS: secure, KeyPrefix: c.KeyPrefix}
	if dry {
		return cfg.Check()
	}
	r, err := redisstore.Open(cfg)
	if err != nil {
		return err
	}
	o.Store, o.Close = r, r.Close
	o.Run = heartbeat(r)
	o.Instances = func() int {
		if n := r.Instances(); n > 0 {
			return n
		}
		return int(c.Instances)
	}
	o.Options = append(o.Options, sluice.WithInstances(o.Instances))
	awaitOrSay(r.Join, log)
	return nil
}

func (o *Opened) openMemcached(c *config.Store, secure *tls.Config, log *slog.Logger, dry bool) error {
	m, err := memcachestore.Open(memcachestore.Config{Addrs: c.Addresses, TLS: secure, KeyPrefix: c.KeyPrefix})
	if err != nil {
		return err
	}
	o.Store, o.Close = m, func() { _ = m.Close() }
	if c.Instances > 0 {
		o.Options = append(o.Options, sluice.WithInstances(o.Instances))
	}
	if !dry {
		awaitOrSay(m.Connect, log)
	}
	return nil
}

func (o *Opened) openMemory(c *config.Store, dry bool) error {
	m, err := memstore.Open(memstore.Config{MaxBytes: c.MaxMemory, SnapshotFile: c.SnapshotFile, KeepKeys: true})
	if err != nil {
		return err
	}
	o.Store = m
	if c.SnapshotFile != "" && !dry {
		o.Save = m.SaveSnapshot
	}
	return nil
}

// OpenSnapshot opens a store for reading: an empty one, or one from a snapshot. It is never saved.
func OpenSnapshot(path string) (sluice.Store, error) {
	if path != "" {
		if _, err := os.Stat(path); err != nil { // Open accepts a missing file
			return nil, fmt.Errorf("--snapshot: %w", err)
		}
	}
	return memstore.Open(memstore.Config{SnapshotFile: path})
}

// storeError returns an error of a store with the names of settings instead of Go fields.
func storeError(err error) error {
	text := err.Error()
	for _, prefix := range []string{"redisstore: ", "memcachestore: ", "memstore: ", redisstore.ErrConfig.Error() + ": "} {
		text = strings.TrimPrefix(text, prefix)
	}
	text = goNames.Replace(text)
	for prefix, setting := range map[string]string{"tls.": "store.tls.", "Addrs: ": "store.addresses: ", "snapshot: ": "store.snapshot_file: "} {
		if rest, ok := strings.CutPrefix(text, prefix); ok {
			text = setting + rest
		}
	}
	if !strings.HasPrefix(text, "store.") {
		text = "store: " + text
	}
	return &storeFault{text, err}
}

var goNames = strings.NewReplacer("Config.PasswordFile", "store.password_file", "Config.URL", "store.url", "Config.TLS", "store.tls")

type storeFault struct {
	text string
	err  error
}

func (e *storeFault) Error() string { return e.text }

func (e *storeFault) Unwrap() error { return e.err }

// firstAnswer is how long the service waits for the store before it serves. It is longer than the store timeout,
// because connections are opened first.
const firstAnswer = time.Second

// await waits for the store's first reply.
func await(ctx context.Context, answer func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, firstAnswer)
	defer cancel()
	return answer(ctx)
}

// awaitOrSay waits for the store's first reply, and logs an error if there is none.
func awaitOrSay(answer func(context.Context) error, log *slog.Logger) {
	if err := await(context.Background(), answer); err != nil {
		log.Error("store unavailable at startup", "error", storeError(err))
	}
}
