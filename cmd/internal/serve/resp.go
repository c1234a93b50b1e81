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
	"github.com/sluiceproject/sluice/internal/plainfile"
	"github.com/sluiceproject/sluice/memstore"
)

// respName is the listener of Redis clients.
const respName = "RESP"

// respLimit is how often one address may show a wrong password: ten at once, then one in a second.
var respLimit = sluice.PerSecond(1).WithBurst(10)

// listenRESP adds the listener of Redis clients, if there is to be one.
func (s *Service) listenRESP(to *listen.Config) error {
	in := &s.cfg.RESP
	if in.Address == config.Off {
		return nil
	}
	cfg := resp.Config{Log: s.log, OnFailure: respFailModes[in.OnFailure], Counted: s.countRESP()}
	if in.PasswordFile != "" {
		p := &passwordFile{path: in.PasswordFile}
		if err := p.read(); err != nil {
			return fmt.Errorf("resp.password_file: %w", err)
		}
		store, err := memstore.Open(memstore.Config{Bytes: 1 << 20})
		if err != nil {
			return err
		}
		if cfg.Attempts, err = sluice.New(store, "resp-auth", respLimit); err != nil {
			return err
		}
		cfg.Password = func() [sha256.Size]byte {
			if err := p.read(); err != nil {
				s.log.Error("the password of Redis clients cannot be read: keeping the last one", "error", err)
			}
			return p.get()
		}
	}
	r, err := resp.New(s.limiter, cfg)
	if err != nil {
		return err
	}
	to.Other = append(to.Other, listen.Other{
		Name: respName, Address: in.Address, TLS: listen.TLS{Cert: in.TLS.Cert, Key: in.TLS.Key, ClientCA: in.TLS.ClientCA},
		MaxConnections: int(in.MaxConnections), MaxPerAddress: int(config.Share(in.MaxPerAddress, in.MaxConnections)), Serve: r.Serve, Drain: r.Drain,
	})
	return nil
}

// keyedRules are those of no file, whose clients bring key and limit.
func (s *Service) keyedRules() []*sluice.Rule {
	if s.cfg.RESP.Address == config.Off {
		return nil
	}
	return []*sluice.Rule{sluice.Must(sluice.NewRule(sluice.Rule{Name: resp.RuleName, Limit: sluice.PerSecond(1)}))}
}

// countRESP counts what Redis clients ask.
func (s *Service) countRESP() func(resp.Counts) {
	const allowed, limited, other, faulty = "allowed", "limited", "ok", "error"
	requests := s.metrics.Requests("resp", allowed, limited, other, faulty)
	return func(c resp.Counts) {
		add := func(code string, n int64) {
			if n > 0 {
				requests.Add(code, n)
			}
		}
		add(allowed, c.Allowed)
		add(limited, c.Limited)
		add(other, c.Other)
		add(faulty, c.Errors)
	}
}

var respFailModes = map[string]sluice.FailMode{"local": sluice.FailLocal, "open": sluice.FailOpen, "closed": sluice.FailClosed}

// passwordFile is a password that may be replaced.
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
