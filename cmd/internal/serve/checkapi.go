package serve

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/sluiceproject/sluice/cmd/internal/edge/checkapi"
	"github.com/sluiceproject/sluice/cmd/internal/edge/rls"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminapi"
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

// refundGuard asks callers who give back what was charged for a token. It is nil without a file: then none may.
func refundGuard(path string) (*adminapi.Guard, error) {
	if path == "" {
		return nil, nil
	}
	token, err := adminapi.ReadToken(path)
	if err != nil {
		return nil, fmt.Errorf("check.refund_token_file: %w", err)
	}
	attempts, err := failedTokens()
	if err != nil {
		return nil, err
	}
	return &adminapi.Guard{Token: token, Attempts: attempts, Setting: "check.refund_token_file"}, nil
}

// handleCheck has the mux answer the check API.
func (e edges) handleCheck(mux *http.ServeMux, requests *metrics.Requests) {
	cfg := checkapi.Config{
		Limiter: e.limiter, Rules: e.rules, Descriptors: e.decider(), Bounds: e.rlsBounds(), Secret: e.secret,
	}
	if e.refunds != nil {
		if h := &e.cfg.HTTP; h.TLS.Cert == "" && !strings.HasPrefix(h.Address, "unix:") && !isLoopback(h.Address) {
			e.log.Warn("token of refunds travels in clear: set listeners.http.tls.cert and key, unless something else encrypts", "address", h.Address)
		}
		cfg.Refunds = func(r *http.Request) *checkapi.Refusal { return (*checkapi.Refusal)(e.refunds.Authorize(r)) }
	}
	api := checkapi.New(cfg)
	api.Register(mux, requests.HTTP)
}

// decider answers about descriptors, whoever asks.
func (e edges) decider() *rls.Decider {
	return rls.NewDecider(e.limiter, e.rules, rlsOptions(&e.cfg.RLS))
}
