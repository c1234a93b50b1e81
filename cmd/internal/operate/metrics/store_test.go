package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/operate/metrics"
)

// A shard is up unless its circuit breaker is open or the ping fails.
func TestStore(t *testing.T) {
	var ping error
	n := 1
	m := metrics.New(metrics.Config{
		Rules: rulesOf(t, several).Load, Servers: func() int { return n }, Ping: func(context.Context) error { return ping },
		Keys: func() int { return 42 },
	})
	expect := func(want map[string]float64) {
		t.Helper()
		got := scrape(t, m)
		maps.DeleteFunc(got, func(name string, _ float64) bool {
			return !strings.HasPrefix(name, "sluice_store_")
		})
		compare(t, got, want)
	}
	expect(map[string]float64{
		`sluice_store_up{shard="0"}`: 1, `sluice_store_breaker_open{shard="0"}`: 0, "sluice_store_errors_total": 0, "sluice_store_keys": 42,
	})
	ping = errors.New("unavailable")
	m.Events().OnStoreError(t.Context(), ping)
	expect(map[string]float64{
		`sluice_store_up{shard="0"}`: 0, `sluice_store_breaker_open{shard="0"}`: 0, "sluice_store_errors_total": 1, "sluice_store_keys": 42,
	})
	n = 2 // the ping does not identify the unavailable shard
	m.Events().OnShardUnavailable(t.Context(), 1, ping)
	expect(map[string]float64{
		`sluice_store_up{shard="0"}`: 1, `sluice_store_breaker_open{shard="0"}`: 0, "sluice_store_errors_total": 1, "sluice_store_keys": 42,
		`sluice_store_up{shard="1"}`: 0, `sluice_store_breaker_open{shard="1"}`: 1,
	})
	m.Events().OnShardRecovered(t.Context(), 1)
	if got := scrape(t, m)[`sluice_store_up{shard="1"}`]; got != 1 {
		t.Errorf("sluice_store_up of a recovered shard is %v, want 1", got)
	}
}

// The keys of the store are not counted on each scrape.
func TestKeysAreCountedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counted := 0
		m := metrics.New(metrics.Config{Rules: rulesOf(t, several).Load, Keys: func() int { counted++; return 10 * counted }})
		for _, want := range []float64{10, 10, 20} {
			if got := scrape(t, m)["sluice_store_keys"]; got != want {
				t.Errorf("there are %v keys, want %v", got, want)
			}
			<-time.After(6 * time.Second)
		}
	})
}

func TestLoaded(t *testing.T) {
	loaded := metrics.Loaded{Digest: "abc", At: time.Unix(1000, 500e6)}
	m := metrics.New(metrics.Config{Version: "v1.2", Rules: rulesOf(t, several).Load, Loaded: func() metrics.Loaded { return loaded }})
	compare(t, ours(scrape(t, m), "sluice_rules_"), map[string]float64{
		`sluice_rules_info{digest="abc"}`: 1, "sluice_rules_last_reload_successful": 1, "sluice_rules_last_reload_success_timestamp_seconds": 1000.5,
	})
	loaded.Failed = true
	got := scrape(t, m)
	if got["sluice_rules_last_reload_successful"] != 0 {
		t.Error("a failed reload is not exported")
	}
	if build := ours(got, "sluice_build_info"); len(build) != 1 || !strings.Contains(fmt.Sprint(build), `version="v1.2"`) {
		t.Errorf("got %v", build)
	}
}
