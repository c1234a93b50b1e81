package admission_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/admission"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rules"
)

// A request of a blocked key is denied at once with 429, whatever on_limit is: it is neither queued nor delayed.
func TestBlockedIsDenied(t *testing.T) {
	for name, rule := range map[string]rules.Rule{
		"deny":                {Limits: limits(sluice.PerSecond(100))},
		"queue":               {Limits: limits(sluice.PerSecond(100)), OnLimit: rules.OnLimitQueue},
		"ordered queue":       {Limits: limits(sluice.PerSecond(100)), OnLimit: rules.OnLimitQueue, Queue: rules.QueueOptions{Ordered: true}},
		"delay, leaky queue":  {Limits: limits(sluice.PerSecond(100).WithAlgorithm(sluice.LeakyQueue)), OnLimit: rules.OnLimitDelay, MaxDelay: time.Hour},
		"delay, token bucket": {Limits: limits(sluice.PerSecond(100)), OnLimit: rules.OnLimitDelay, MaxDelay: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rule.Name = "r"
				l := limiter(memstore.New())
				h := newEdge(l, always(rules.Config{Rules: []rules.Rule{rule}}), nil, func(w http.ResponseWriter, _ *admission.QueueTarget) {
					w.WriteHeader(http.StatusAccepted)
				})
				if got := serve(h, request()).StatusCode; got != http.StatusOK {
					t.Fatalf("before the block: status %d", got)
				}
				blocked := sluice.Must(sluice.NewRule(sluice.Rule{Name: "r", Limit: rule.Limits[0].Limit}))
				if err := l.BlockBuckets(t.Context(), time.Minute, sluice.Bucket{Rule: blocked}); err != nil {
					t.Fatal(err)
				}
				<-time.After(time.Second) // the interval of the first request is over
				start := time.Now()
				resp := serve(h, request())
				if took := time.Since(start); resp.StatusCode != http.StatusTooManyRequests || took > 0 {
					t.Errorf("status %d after %v, want 429 at once", resp.StatusCode, took)
				}
				if got := resp.Header.Get("Retry-After"); got != "59" {
					t.Errorf("Retry-After %s, want 59", got)
				}
			})
		})
	}
}
