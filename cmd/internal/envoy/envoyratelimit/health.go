package envoyratelimit

import (
	"context"
	"net/http"
	"sync"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/sluiceproject/sluice/cmd/internal/envoy/stats"
)

// serviceName is the name of the service in the gRPC health protocol.
const serviceName = "ratelimit"

// readiness tracks whether the service is ready: it is if all its parts are.
type readiness struct {
	mu      sync.Mutex // guards the fields below
	bad     map[string]bool
	changed func(ready bool) // nil: not set yet
}

// Parts of the service that may not be ready.
const (
	partRedis  = "redis"
	partConfig = "config"
	partEnding = "sigterm"
)

func newReadiness() *readiness { return &readiness{bad: make(map[string]bool)} }

// onChange calls f now and after each change.
func (r *readiness) onChange(f func(ready bool)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed = f
	f(len(r.bad) == 0)
}

// set records whether a part is ready.
func (r *readiness) set(part string, ready bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ready {
		delete(r.bad, part)
	} else {
		r.bad[part] = true
	}
	if r.changed != nil {
		r.changed(len(r.bad) == 0)
	}
}

func (r *readiness) ok() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.bad) == 0
}

// ServeHTTP serves /healthcheck.
func (r *readiness) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if !r.ok() {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	_, _ = w.Write([]byte("OK")) // a failed write means that the client is gone
}

// checks counts health checks, as the reference does.
type checks struct {
	healthpb.HealthServer
	stats *stats.Stats
}

func (c *checks) Check(ctx context.Context, req *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	began := time.Now()
	c.stats.Check.Requests.Add(1)
	resp, err := c.HealthServer.Check(ctx, req)
	c.stats.Check.Responses.Observe(time.Since(began))
	return resp, err
}
