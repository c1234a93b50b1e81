package serve

import (
	"net/http"

	"github.com/sluiceproject/sluice/cmd/internal/edge/forwardauth"
)

// handleAuth registers forward authentication with a mux.
func (e edges) handleAuth(mux *http.ServeMux) {
	h := e.metrics.Requests("auth", "204", "429").HTTP(forwardauth.New(e.limiter, e.rules, e.cfg.ForwardAuth.MaxDelay))
	mux.Handle("/v1/auth", h)
	mux.Handle("/v1/auth/nginx", forwardauth.ForNginx(h))
}
