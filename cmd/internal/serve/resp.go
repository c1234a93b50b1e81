package serve

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"sync/atomic"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/cmd/internal/edge/listen"
	"github.com/sluiceproject/sluice/cmd/internal/edge/resp"
	"github.com/sluiceproject/sluice/cmd/internal/operate/metrics"
	"github.com/sluiceproject/sluice/internal/plainfile"
	"github.com/sluiceproject/sluice/memstore"
)

// respName is the name of the listener for Redis clients.
const respName = "RESP"

// respLimit is the limit on wrong passwords per address: a burst of 10, then 1 per second.
var respLimit = sluice.PerSecond(1).WithBurst(10)

// resp returns the listener for Redis clients, and their password file, or nil without one.
func (e edges) resp() (l listen.Custom, password *plainfile.Reloaded, err error) {
	in := &e.cfg.RESP
	cfg := resp.Config{Log: e.log, OnFailure: respFailModes[in.OnFailure], Counted: countRESP(e.metrics)}
	if in.PasswordFile != "" {
		var current atomic.Pointer[[sha256.Size]byte]
		password = respPassword(in.PasswordFile, &current)
		if _, err := password.Load(); err != nil {
			return l, nil, fmt.Errorf("resp.password_file: %w", err)
		}
		store, err := memstore.Open(memstore.Config{MaxBytes: 1 << 20})
		if err != nil {
			return l, nil, err
		}
		if cfg.Attempts, err = sluice.New(store, "resp-auth", respLimit); err != nil {
			return l, nil, err
		}
		cfg.Password = func() [sha256.Size]byte {
			password.Reload(e.log)
			return *current.Load()
		}
	}
	r, err := resp.New(e.limiter, cfg)
	if err != nil {
		return l, nil, err
	}
	return listen.Custom{
		Name: respName, Serve: r.Serve, Drain: r.Drain,
		Endpoint: endpoint(in.Address, in.TLS, in.MaxConnections, config.Share(in.MaxConnectionsPerAddress, in.MaxConnections)),
	}, password, nil
}

// keyedRules returns the rules that are in no file, because their clients send key and limit.
func keyedRules(cfg *config.Config) []*sluice.Rule {
	if cfg.RESP.Address == config.Off {
		return nil
	}
	return []*sluice.Rule{sluice.Must(sluice.NewRule(sluice.Rule{Name: resp.RuleName, Limit: sluice.PerSecond(1)}))}
}

// countRESP returns a function that counts commands of Redis clients.
func countRESP(counted *metrics.Metrics) func(resp.Counts) {
	const allowed, denied, other, failed = "allowed", "denied", "ok", "error"
	requests := counted.Requests("resp", allowed, denied, other, failed)
	return func(c resp.Counts) {
		add := func(code string, n int64) {
			if n > 0 {
				requests.Add(code, n)
			}
		}
		add(allowed, c.Allowed)
		add(denied, c.Denied)
		add(other, c.Other)
		add(failed, c.Errors)
	}
}

var respFailModes = map[string]sluice.FailMode{"local": sluice.FailLocal, "open": sluice.FailOpen, "closed": sluice.FailClosed}

// respPassword returns the password file of Redis clients. It stores the digest of the password in current.
func respPassword(path string, current *atomic.Pointer[[sha256.Size]byte]) *plainfile.Reloaded {
	return &plainfile.Reloaded{What: "RESP password", Path: path, MaxBytes: maxSecret, Use: func(b []byte) error {
		b = bytes.TrimRight(b, "\r\n")
		if len(b) == 0 {
			return fmt.Errorf("%s is empty: write the password into it, in one line", path)
		}
		digest := sha256.Sum256(b)
		current.Store(&digest)
		return nil
	}}
}
