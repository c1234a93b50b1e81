package rls_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/edge/rls"
	"github.com/sluiceproject/sluice/cmd/internal/testenv/rlstest"
	"github.com/sluiceproject/sluice/internal/testenv/memcachetest"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
	"github.com/sluiceproject/sluice/memcachestore"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/redisstore"
	"github.com/sluiceproject/sluice/rulefile"
	"github.com/sluiceproject/sluice/rules"
)

// options returns the options of a test case.
func options(s rlstest.Settings) rls.Options {
	o := rls.Options{
		Shadow: s.Shadow, Quota: s.Quota, Metadata: s.Metadata, Overrides: s.Overrides, NegativeHits: s.Negative,
	}
	if s.Headers {
		o.Headers = rls.DefaultHeaders
	}
	return o
}

func writeFile(name, text string) error { return os.WriteFile(name, []byte(text), 0o600) }

// decider returns a service with the rules of a directory.
func decider(t testing.TB, store sluice.Store, o rls.Options, files rulefile.Options, directory string) *rls.Decider {
	t.Helper()
	loaded, err := rulefile.Load(files, directory)
	if err != nil {
		t.Fatal(err)
	}
	limiter, err := sluice.NewWithRules(store, nil, sluice.WithStoreTimeout(10*time.Second)) // so that a busy machine causes no timeout
	if err != nil {
		t.Fatal(err)
	}
	return rls.NewDecider(limiter, func() *rules.Set { return loaded.Set }, o)
}

// stores returns all stores, each with its own key prefix.
func stores(t *testing.T) map[string]func(prefix string) sluice.Store {
	redis, memcached := redistest.Start(t), memcachetest.Start(t)
	opened := func(store sluice.Store, err error) sluice.Store {
		if err != nil {
			t.Fatal(err)
		}
		switch s := store.(type) {
		case interface{ Close() }:
			t.Cleanup(s.Close)
		case io.Closer:
			t.Cleanup(func() { _ = s.Close() })
		}
		return store
	}
	return map[string]func(prefix string) sluice.Store{
		"memory": func(string) sluice.Store { return memstore.New() },
		"redis": func(prefix string) sluice.Store {
			return opened(redisstore.Open(redisstore.Config{URL: redis.URL(), KeyPrefix: prefix}))
		},
		"memcached": func(prefix string) sluice.Store {
			return opened(memcachestore.Open(memcachestore.Config{Addrs: []string{memcached.Addr}, KeyPrefix: prefix}))
		},
	}
}

// All stores give the same responses in all cases.
func TestCases(t *testing.T) {
	for name, open := range stores(t) {
		t.Run(name, func(t *testing.T) {
			for i, g := range rlstest.Groups(true) {
				directory := t.TempDir()
				g.Write(t, directory, writeFile)
				d := decider(t, open(fmt.Sprint("group", i, ":")), options(g.Settings), rulefile.Options{}, directory)
				g.Run(t, pb.NewRateLimitServiceClient(dial(t, d, rls.Bounds{})))
			}
		})
	}
}

// TestWorkedExample is the example of Lyft's format: 5 marketing messages per day, and 5 logins per minute.
func TestWorkedExample(t *testing.T) {
	for name, open := range stores(t) {
		t.Run(name, func(t *testing.T) {
			for attempt := range 10 {
				began := time.Now().Truncate(time.Minute)
				d := decider(t, open(fmt.Sprint("attempt", attempt, ":")), rls.Options{}, rulefile.Options{}, "../../../../examples/rules/envoy")
				client := pb.NewRateLimitServiceClient(dial(t, d, rls.Bounds{}))
				var got []string
				for range 6 {
					got = append(got, rlstest.Answer(t.Context(), client, "messaging", "message_type=marketing"),
						rlstest.Answer(t.Context(), client, "auth", "auth_type=login"))
				}
				got = append(got, rlstest.Answer(t.Context(), client, "messaging", "message_type=receipt"),
					rlstest.Answer(t.Context(), client, "auth", "auth_type=logout"))
				if !time.Now().Truncate(time.Minute).Equal(began) {
					continue // a window ended during the requests
				}
				var want []string
				for left := 4; left >= 0; left-- {
					want = append(want, fmt.Sprintf("OK: OK 5/DAY left %d", left), fmt.Sprintf("OK: OK 5/MINUTE left %d", left))
				}
				want = append(want, "OVER_LIMIT: OVER_LIMIT 5/DAY left 0", "OVER_LIMIT: OVER_LIMIT 5/MINUTE left 0", "OK: OK", "OK: OK")
				if !slices.Equal(got, want) {
					t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
				return
			}
			t.Error("six requests took longer than a minute in ten attempts")
		})
	}
}

// rulesIn writes a rule file of the domain d to a directory.
func rulesIn(t testing.TB, descriptors string) string {
	t.Helper()
	directory := t.TempDir()
	if err := writeFile(filepath.Join(directory, "d.yaml"), "domain: d\ndescriptors:\n"+descriptors); err != nil {
		t.Fatal(err)
	}
	return directory
}
