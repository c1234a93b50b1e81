package serve

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"

	"github.com/sluiceproject/sluice/cmd/internal/edge/checkapi"
	"github.com/sluiceproject/sluice/cmd/internal/edge/rls"
	"github.com/sluiceproject/sluice/cmd/internal/operate/metrics"
	"github.com/sluiceproject/sluice/internal/plainfile"
)

// The secret of reservations: at least as much as cannot be guessed, and no more than anybody means.
const (
	minSecret = 32
	maxSecret = 4 << 10
)

// readReservationSecret reads the secret of reservations. Without a file it is nil: a random one is used.
func readReservationSecret(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	secret, err := plainfile.Read(path, maxSecret)
	secret = bytes.TrimSpace(secret)
	switch {
	case errors.Is(err, plainfile.ErrTooLarge):
		return nil, fmt.Errorf("check.secret_file: %s has more than %d bytes, a secret has %d to %d: make one with openssl rand -hex 32",
			path, maxSecret, minSecret, maxSecret)
	case err != nil:
		return nil, fmt.Errorf("check.secret_file: %w", err)
	case len(secret) < minSecret || len(secret) > maxSecret:
		return nil, fmt.Errorf("check.secret_file: %s has %d bytes, a secret has %d to %d: make one with openssl rand -hex 32",
			path, len(secret), minSecret, maxSecret)
	}
	return secret, nil
}

// handleCheck has the mux answer the check API.
func (e edges) handleCheck(mux *http.ServeMux, requests *metrics.Requests) {
	api := checkapi.New(checkapi.Config{
		Limiter: e.limiter, Rules: e.rules, Descriptors: e.decider(), Bounds: e.rlsBounds(), Secret: e.secret,
	})
	api.Register(mux, requests.HTTP)
}

// decider answers about descriptors, whoever asks.
func (e edges) decider() *rls.Decider {
	return rls.NewDecider(e.limiter, e.rules, rlsOptions(&e.cfg.RLS))
}
