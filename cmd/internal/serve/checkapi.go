package serve

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"

	"github.com/sluiceproject/sluice/cmd/internal/edge/checkapi"
	"github.com/sluiceproject/sluice/cmd/internal/edge/rls"
	"github.com/sluiceproject/sluice/internal/plainfile"
)

// The secret of reservations: at least as much as cannot be guessed, and no more than anybody means.
const (
	minSecret = 32
	maxSecret = 4 << 10
)

// openCheck reads the secret of reservations.
func (s *Service) openCheck() error {
	path := s.cfg.Check.SecretFile
	if path == "" {
		return nil
	}
	secret, err := plainfile.Read(path, maxSecret)
	secret = bytes.TrimSpace(secret)
	switch {
	case errors.Is(err, plainfile.ErrTooLarge):
		return fmt.Errorf("check.secret_file: %s has more than %d bytes, a secret has %d to %d: make one with openssl rand -hex 32",
			path, maxSecret, minSecret, maxSecret)
	case err != nil:
		return fmt.Errorf("check.secret_file: %w", err)
	case len(secret) < minSecret || len(secret) > maxSecret:
		return fmt.Errorf("check.secret_file: %s has %d bytes, a secret has %d to %d: make one with openssl rand -hex 32",
			path, len(secret), minSecret, maxSecret)
	}
	s.secret = secret
	return nil
}

// handleCheck has the mux answer the check API.
func (s *Service) handleCheck(mux *http.ServeMux) {
	api := checkapi.New(checkapi.Config{
		Limiter: s.limiter, Rules: s.rules, Descriptors: s.decider(), Bounds: rlsBounds(&s.cfg.RLS), Secret: s.secret,
	})
	s.http = s.metrics.Requests("http", "200", "429")
	api.Register(mux, s.http.HTTP)
}

// decider answers about descriptors, whoever asks.
func (s *Service) decider() *rls.Decider {
	return rls.NewDecider(s.limiter, s.rules, rlsOptions(&s.cfg.RLS))
}
