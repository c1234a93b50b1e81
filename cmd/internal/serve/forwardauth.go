package serve

import (
	"net/http"

	"github.com/sluiceproject/sluice/cmd/internal/edge/forwardauth"
)

// handleAuth answers proxies that ask whether a request may pass.
func (e edges) handleAuth(mux *http.ServeMux) {
	h := e.metrics.Requests("auth", "204", "429").HTTP(forwardauth.New(e.limiter, e.rules, e.cfg.Auth.MaxWait))
	mux.Handle("/v1/auth", h)
	mux.Handle("/v1/auth/nginx", forwardauth.ForNginx(h))
}
