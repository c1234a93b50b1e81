package adminapi

import (
	"context"
	"net/http"
	"net/http/pprof"
	"strconv"
	"strings"
	"time"
)

const (
	pprofPath  = "/debug/pprof/"
	maxProfile = 60 // seconds
)

// pprof serves profiles. It requires a token, because profiles cost CPU time and reveal internal details. The command line is
// not served, because it may contain secrets.
func (a *api) pprof(w http.ResponseWriter, r *http.Request) (any, error) {
	if a.Token == nil {
		return nil, problemf(http.StatusForbidden, "profiles require a token: set admin.token_file")
	}
	if r.Method != http.MethodGet {
		return nil, problemf(http.StatusMethodNotAllowed, "method not allowed: profiles support GET")
	}
	seconds := 30
	if text := r.URL.Query().Get("seconds"); text != "" {
		var err error
		if seconds, err = strconv.Atoi(text); err != nil || seconds < 1 || seconds > maxProfile {
			return nil, problemf(http.StatusBadRequest, "seconds: write 1 to %d", maxProfile)
		}
	}
	out := http.NewResponseController(w)
	_ = out.SetReadDeadline(time.Time{})
	_ = out.SetWriteDeadline(time.Now().Add(time.Duration(seconds)*time.Second + watchWrite))
	// Package pprof rejects profiles longer than the server's WriteTimeout, which does not apply after SetWriteDeadline.
	r = r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, &http.Server{}))
	switch name := strings.TrimPrefix(r.URL.Path, pprofPath); name {
	case "profile":
		pprof.Profile(w, r)
	case "trace":
		pprof.Trace(w, r)
	case "symbol":
		pprof.Symbol(w, r)
	case "cmdline":
		return nil, problemf(http.StatusNotFound, "the command line is not served, because it may contain secrets")
	default:
		pprof.Index(w, r)
	}
	return nil, nil
}
