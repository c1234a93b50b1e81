package rls_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/memcachetest"
	"github.com/sluiceproject/sluice/internal/redistest"
	"github.com/sluiceproject/sluice/internal/rls"
	"github.com/sluiceproject/sluice/internal/rlstest"
	"github.com/sluiceproject/sluice/memcachestore"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/redisstore"
	"github.com/sluiceproject/sluice/rulefile"
	"github.com/sluiceproject/sluice/rules"
)

// options are a case's settings.
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

// decider is a service with rules from a directory.
func decider(t testing.TB, store sluice.Store, o rls.Options, files rulefile.Options, directory string) *rls.Decider {
	t.Helper()
	loaded, err := rulefile.Load(files, directory)
	if err != nil {
		t.Fatal(err)
	}
	limiter, err := sluice.NewRules(store, nil, sluice.WithBudget(10*time.Second)) // a busy machine is no outage
	if err != nil {
		t.Fatal(err)
	}
	return rls.NewDecider(limiter, func() *rules.Set { return loaded.Set }, o)
}

// All stores answer all cases alike.
func TestCases(t *testing.T) {
	redis, memcached := redistest.Start(t), memcachetest.Start(t)
	for name, open := range map[string]func(prefix string) (sluice.Store, error){
		"memory": func(string) (sluice.Store, error) { return memstore.New(), nil },
		"redis": func(prefix string) (sluice.Store, error) {
			return redisstore.Open(redisstore.Config{URL: redis.URL(), Prefix: prefix})
		},
		"memcached": func(prefix string) (sluice.Store, error) {
			return memcachestore.Open(memcachestore.Config{Addrs: []string{memcached.Addr}, Prefix: prefix})
		},
	} {
		t.Run(name, func(t *testing.T) {
			for i, g := range rlstest.Groups(true) {
				store, err := open(fmt.Sprint("group", i, ":"))
				if err != nil {
					t.Fatal(err)
				}
				switch s := store.(type) {
				case interface{ Close() }:
					t.Cleanup(s.Close)
				case io.Closer:
					t.Cleanup(func() { _ = s.Close() })
				}
				directory := t.TempDir()
				g.Write(t, directory, writeFile)
				d := decider(t, store, options(g.Settings), rulefile.Options{}, directory)
				g.Run(t, pb.NewRateLimitServiceClient(dial(t, d, rls.Bounds{})))
			}
		})
	}
}

// rulesIn writes rules of the domain d to a directory.
func rulesIn(t testing.TB, descriptors string) string {
	t.Helper()
	directory := t.TempDir()
	if err := writeFile(filepath.Join(directory, "d.yaml"), "domain: d\ndescriptors:\n"+descriptors); err != nil {
		t.Fatal(err)
	}
	return directory
}
