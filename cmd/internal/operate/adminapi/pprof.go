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

// pprof shows what the process is busy with, to who has a token only: a profile costs time and shows the inside. The
// command line is not shown at all, since it may hold secrets.
func (a *api) pprof(w http.ResponseWriter, r *http.Request) (any, error) {
	if a.Token == nil {
		return nil, problemf(http.StatusForbidden, "profiles are shown to who has a token only: set admin.token_file")
	}
	if r.Method != http.MethodGet {
		return nil, problemf(http.StatusMethodNotAllowed, "profiles are asked for with GET")
	}
	seconds := 30
	if text := r.URL.Query().Get("seconds"); text != "" {
		var err error
		if seconds, err = strconv.Atoi(text); err != nil || seconds < 1 || seconds > maxProfile {
			return nil, problemf(http.StatusBadRequest, "seconds: ask for 1 to %d", maxProfile)
		}
	}
	out := http.NewResponseController(w)
	_ = out.SetReadDeadline(time.Time{})
	_ = out.SetWriteDeadline(time.Now().Add(time.Duration(seconds)*time.Second + watchWrite))
	// The package refuses what takes longer than the server lets answers take, which was changed for this one.
	r = r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, &http.Server{}))
	switch name := strings.TrimPrefix(r.URL.Path, pprofPath); name {
	case "profile":
		pprof.Profile(w, r)
	case "trace":
		pprof.Trace(w, r)
	case "symbol":
		pprof.Symbol(w, r)
	case "cmdline":
		return nil, problemf(http.StatusNotFound, "the command line is not shown: it may hold secrets")
	default:
		pprof.Index(w, r)
	}
	return nil, nil
}
