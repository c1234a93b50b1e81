package serve

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"sync"

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

// resp returns the listener for Redis clients.
func (e edges) resp() (listen.Custom, error) {
	in := &e.cfg.RESP
	cfg := resp.Config{Log: e.log, OnFailure: respFailModes[in.OnFailure], Counted: countRESP(e.metrics)}
	if in.PasswordFile != "" {
		p := &passwordFile{path: in.PasswordFile}
		if err := p.read(); err != nil {
			return listen.Custom{}, fmt.Errorf("resp.password_file: %w", err)
		}
		store, err := memstore.Open(memstore.Config{MaxBytes: 1 << 20})
		if err != nil {
			return listen.Custom{}, err
		}
		if cfg.Attempts, err = sluice.New(store, "resp-auth", respLimit); err != nil {
			return listen.Custom{}, err
		}
		cfg.Password = func() [sha256.Size]byte {
			if err := p.read(); err != nil {
				e.log.Error("RESP password file unreadable: previous password stays in use", "error", err)
			}
			return p.get()
		}
	}
	r, err := resp.New(e.limiter, cfg)
	if err != nil {
		return listen.Custom{}, err
	}
	return listen.Custom{
		Name: respName, Serve: r.Serve, Drain: r.Drain,
		Endpoint: endpoint(in.Address, in.TLS, in.MaxConnections, config.Share(in.MaxConnectionsPerAddress, in.MaxConnections)),
	}, nil
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

// passwordFile is a password in a file that may change. It is safe for concurrent use.
type passwordFile struct {
	path string
	mu   sync.Mutex // guards last
	last [sha256.Size]byte
}

func (p *passwordFile) read() error {
	b, err := plainfile.Read(p.path, maxSecret)
	if err != nil {
		return err
	}
	b = bytes.TrimRight(b, "\r\n")
	if len(b) == 0 {
		return fmt.Errorf("%s is empty: write the password into it, in one line", p.path)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = sha256.Sum256(b)
	return nil
}

func (p *passwordFile) get() [sha256.Size]byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}
