package telemetry_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/edge/rls"
	"github.com/sluiceproject/sluice/cmd/internal/operate/telemetry"
	"github.com/sluiceproject/sluice/cmd/internal/testenv/otlptest"
	"github.com/sluiceproject/sluice/memcachestore"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/redisstore"
)

type service struct{ err error }

func (s *service) ShouldRateLimit(context.Context, *rls.Request, *rls.Response) error { return s.err }

// far is a remote store without optional interfaces.
type far struct{ *memstore.Store }

func (far) Shards() int            { return 1 }
func (far) Shard(*sluice.Take) int { return 0 }

// Without traces all arguments are returned unchanged.
func TestNothing(t *testing.T) {
	var none *telemetry.Traces
	mux, decider, store := http.NewServeMux(), new(service), far{memstore.New()}
	if none.HTTP(mux) != http.Handler(mux) || none.RLS(decider) != rls.Service(decider) || none.Store(store, "far") != sluice.Store(store) {
		t.Error("an argument is wrapped")
	}
	if !reflect.ValueOf(none.Events()).IsZero() || none.Close(t.Context()) != nil {
		t.Error("an event is set, or Close fails")
	}
}

func traces(t *testing.T, c *otlptest.Collector, sample float64) *telemetry.Traces {
	t.Helper()
	traces, err := telemetry.NewTraces(telemetry.Collector{Endpoint: "http://" + c.Addr}, sample)
	if err != nil {
		t.Fatal(err)
	}
	return traces
}

// A traced store implements exactly the interfaces of the store. The memory store is not traced.
func TestStore(t *testing.T) {
	traces := traces(t, otlptest.Start(t), 1)
	t.Cleanup(func() { _ = traces.Close(context.Background()) })
	memory := memstore.New()
	if traces.Store(memory, "memory") != sluice.Store(memory) {
		t.Error("the memory store is traced")
	}
	for _, s := range []sluice.Store{(*redisstore.Store)(nil), (*memcachestore.Store)(nil), far{memstore.New()}} {
		traced := traces.Store(s, "s")
		for what, can := range map[string]func(sluice.Store) bool{
			"ask":   func(s sluice.Store) bool { _, ok := s.(sluice.RemoteStore); return ok },
			"reset": func(s sluice.Store) bool { _, ok := s.(sluice.StoreAdmin); return ok },
			"list":  func(s sluice.Store) bool { _, ok := s.(sluice.BucketLister); return ok },
		} {
			if can(traced) != can(s) {
				t.Errorf("%T: %s is %v, want %v", s, what, can(traced), can(s))
			}
		}
	}
}

// Requests that are not sampled are not exported and do not allocate.
func TestNotSampled(t *testing.T) {
	c := otlptest.Start(t)
	traces := traces(t, c, 0)
	store := traces.Store(far{memstore.New()}, "far")
	rule := sluice.Must(sluice.NewRule(sluice.Rule{Name: "r", Limit: sluice.PerHour(1 << 30)}))
	takes, out := []sluice.Take{{Rule: rule, Key: "k", Cost: 1}}, make([]sluice.Decision, 1)
	decided := traces.Events().OnDecision
	if n := testing.AllocsPerRun(1000, func() {
		if err := store.Apply(t.Context(), takes, out); err != nil {
			t.Fatal(err)
		}
		decided(t.Context(), takes[0], out[0])
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	served := 0
	handler := traces.HTTP(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		served++
		w.WriteHeader(http.StatusTeapot)
	}))
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if err := traces.RLS(new(service)).ShouldRateLimit(t.Context(), new(rls.Request), new(rls.Response)); err != nil {
		t.Error(err)
	}
	if err := traces.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if served != 1 || w.Code != http.StatusTeapot || len(c.Spans()) != 0 {
		t.Errorf("served %d times with %d, %d spans", served, w.Code, len(c.Spans()))
	}
}

// Spans of HTTP requests are named by patterns, and unknown methods are not exported.
func TestHTTP(t *testing.T) {
	c := otlptest.Start(t)
	traces := traces(t, c, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/{what}", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		_, _ = w.Write([]byte("broken"))
		w.WriteHeader(http.StatusInternalServerError) // too late
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
	})
	mux.HandleFunc("GET /broken", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	handler := traces.HTTP(mux)
	for _, r := range []*http.Request{
		httptest.NewRequest(http.MethodPost, "/v1/canary", nil), httptest.NewRequest(http.MethodGet, "/broken", nil), httptest.NewRequest("CANARY", "/", nil),
	} {
		handler.ServeHTTP(httptest.NewRecorder(), r)
	}
	if err := traces.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	spans := c.Spans()
	if len(spans) != 3 {
		t.Fatalf("%v", spans)
	}
	for i, want := range []struct {
		name, method string
		status       int64
		fault        string
	}{
		{"POST /v1/{what}", "POST", 200, ""}, {"GET /broken", "GET", 502, "Bad Gateway"}, {"_OTHER", "_OTHER", 404, ""},
	} {
		got := want
		got.name, got.fault = spans[i].GetName(), spans[i].GetStatus().GetMessage()
		for _, a := range spans[i].GetAttributes() {
			switch a.GetKey() {
			case "http.request.method":
				got.method = a.GetValue().GetStringValue()
			case "http.response.status_code":
				got.status = a.GetValue().GetIntValue()
			}
		}
		if got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

func TestEndpoints(t *testing.T) {
	for endpoint, sound := range map[string]bool{
		"http://h": true, "https://h:1": true, "http://[::1]:4317": true, "http://": false, "http://a b": false, "%": false,
	} {
		traces, err := telemetry.NewTraces(telemetry.Collector{Endpoint: endpoint}, 0)
		if (err == nil) != sound {
			t.Errorf("%s: %v", endpoint, err)
		}
		if traces != nil {
			_ = traces.Close(t.Context())
		}
	}
}
