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

// Bounds of the reservation secret in bytes. A shorter one could be guessed; a longer one is probably the wrong file.
const (
	minSecret = 32
	maxSecret = 4 << 10
)

// readReservationSecret reads the reservation secret. Without a file it is nil, and a random secret is used.
func readReservationSecret(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	secret, err := plainfile.Read(path, maxSecret)
	secret = bytes.TrimSpace(secret)
	switch {
	case errors.Is(err, plainfile.ErrTooLarge):
		return nil, fmt.Errorf("check_api.reservation_secret_file: %s has more than %d bytes, a secret has %d to %d: make one with openssl rand -hex 32",
			path, maxSecret, minSecret, maxSecret)
	case err != nil:
		return nil, fmt.Errorf("check_api.reservation_secret_file: %w", err)
	case len(secret) < minSecret || len(secret) > maxSecret:
		return nil, fmt.Errorf("check_api.reservation_secret_file: %s has %d bytes, a secret has %d to %d: make one with openssl rand -hex 32",
			path, len(secret), minSecret, maxSecret)
	}
	return secret, nil
}

// refundGuard returns the authorization of refunds by token. It is nil without a file: refunds are then rejected.
func refundGuard(path string) (*adminapi.Guard, error) {
	if path == "" {
		return nil, nil
	}
	token, err := adminapi.ReadToken("refund tokens", path)
	if err != nil {
		return nil, fmt.Errorf("check_api.refund_token_file: %w", err)
	}
	attempts, err := failedTokens()
	if err != nil {
		return nil, err
	}
	return &adminapi.Guard{Token: token, Attempts: attempts, Setting: "check_api.refund_token_file"}, nil
}

// handleCheck registers the check API with a mux.
func (e edges) handleCheck(mux *http.ServeMux, requests *metrics.Requests) {
	cfg := checkapi.Config{
		Limiter: e.limiter, Rules: e.rules, Descriptors: e.decider(), Bounds: e.rlsBounds(), Secret: e.secret,
	}
	if e.refunds != nil {
		if h := &e.cfg.HTTP; h.TLS.CertFile == "" && !strings.HasPrefix(h.Address, "unix:") && !isLoopback(h.Address) {
			e.log.Warn("HTTP listener accepts refund tokens without TLS", "address", h.Address, "setting", "listeners.http.tls")
		}
		cfg.Refunds = func(r *http.Request) *checkapi.Refusal { return (*checkapi.Refusal)(e.refunds.Authorize(r)) }
	}
	api := checkapi.New(cfg)
	api.Register(mux, requests.HTTP)
}

// decider returns the decider of descriptors, for gRPC and the check API.
func (e edges) decider() *rls.Decider {
	return rls.NewDecider(e.limiter, e.rules, rlsOptions(&e.cfg.RLS))
}
