package envoyratelimit

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/pprof"
	"slices"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/edge/rls"
	"github.com/sluiceproject/sluice/cmd/internal/envoy/stats"
	"github.com/sluiceproject/sluice/cmd/internal/jsonbody"
	"github.com/sluiceproject/sluice/internal/quota"
)

// jsonPage serves /json: the protocol in JSON, for clients without gRPC.
type jsonPage struct {
	service rls.Service
	bounds  rls.Bounds
	log     *slog.Logger
}

// ServeHTTP serves requests of any method. All errors, those of the store included, are 400.
func (p *jsonPage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var (
		req  rls.Request
		resp rls.Response
	)
	most := p.bounds.GRPCLimit()
	body, err := jsonbody.Read(http.MaxBytesReader(w, r.Body, int64(most)), nil, most)
	if err == nil {
		err = req.DecodeJSON(body, p.bounds)
	}
	if err == nil {
		err = p.service.ShouldRateLimit(r.Context(), &req, &resp)
	}
	if err != nil {
		p.log.Debug("/json request failed", "error", err)
		if bound := (*rls.BoundError)(nil); errors.As(err, &bound) {
			http.Error(w, bound.Error(), http.StatusBadRequest)
			return
		}
		httpStatus(w, http.StatusBadRequest)
		return
	}
	answer, err := resp.JSON()
	if err != nil {
		p.log.Error("encoding of a JSON response failed", "error", err)
		httpStatus(w, http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch resp.Overall {
	case rls.CodeUnknown:
		w.WriteHeader(http.StatusInternalServerError)
	case rls.CodeOverLimit:
		setRetry(w.Header(), &resp)
		w.WriteHeader(http.StatusTooManyRequests)
	}
	_, _ = w.Write(answer) // a failed write means that the client is gone
}

// setRetry sets the headers for retries by the exceeded limit with the longest time until reset. The reference has it only
// in the body.
func setRetry(h http.Header, resp *rls.Response) {
	longest := &rls.Status{}
	for i := range resp.Statuses {
		if st := &resp.Statuses[i]; st.Code == rls.CodeOverLimit && st.Reset >= longest.Reset {
			longest = st
		}
	}
	quota.SetRetry(h, int64(longest.Limit.Requests), time.Duration(longest.Reset)*time.Second)
}

func httpStatus(w http.ResponseWriter, code int) { http.Error(w, http.StatusText(code), code) }

// servicePages returns the handler of PORT.
func servicePages(json *jsonPage, ready *readiness) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/json", json)
	mux.Handle("/healthcheck", ready)
	return mux
}

// debugPages returns the handler of DEBUG_PORT. No page shows the command line or the environment.
func debugPages(dump func() string, stats *stats.Stats) http.Handler {
	pages := map[string]struct {
		help string
		page http.HandlerFunc
	}{
		"/rlconfig": {"print out the currently loaded configuration for debugging", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, dump())
		}},
		"/stats":               {"print out stats", func(w http.ResponseWriter, _ *http.Request) { writeStats(w, stats) }},
		"/debug/pprof/":        {"root of various pprof endpoints. hit for help.", pprof.Index},
		"/debug/pprof/profile": {"CPU profiling endpoint", pprof.Profile},
		"/debug/pprof/trace":   {"trace endpoint", pprof.Trace},
	}
	mux := http.NewServeMux()
	for path, p := range pages {
		mux.HandleFunc(path, p.page)
	}
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) {
		for _, path := range slices.Sorted(maps.Keys(pages)) {
			fmt.Fprintf(w, "%s: %s\n", path, pages[path].help)
		}
	})
	return mux
}

// writeStats writes the statistics sorted by name.
func writeStats(w io.Writer, stats *stats.Stats) {
	var lines []string
	add := func(name string, value uint64) { lines = append(lines, fmt.Sprintf("%s: %d\n", name, value)) }
	stats.Each(add)
	stats.EachGauge(add)
	slices.Sort(lines)
	for _, line := range lines {
		_, _ = io.WriteString(w, line)
	}
}
