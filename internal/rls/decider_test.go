package rls_test

import (
	"os"
	"path/filepath"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/rls"
	"github.com/sluiceproject/sluice/internal/rlstest"
	"github.com/sluiceproject/sluice/memstore"
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
	limiter, err := sluice.NewRules(store, nil)
	if err != nil {
		t.Fatal(err)
	}
	return rls.NewDecider(limiter, func() *rules.Set { return loaded.Set }, o)
}

func TestCases(t *testing.T) {
	for _, g := range rlstest.Groups(true) {
		directory := t.TempDir()
		g.Write(t, directory, writeFile)
		d := decider(t, memstore.New(), options(g.Settings), rulefile.Options{}, directory)
		g.Run(t, pb.NewRateLimitServiceClient(dial(t, d, rls.Bounds{})))
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
