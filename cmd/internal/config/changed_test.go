package config_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/config"
)

// Changed settings are named, changes of layout and comments are ignored, and an invalid file is an error.
func TestChanged(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sluice.yaml")
	write := func(content string) {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("listeners: {gateway: {address: '127.0.0.1:0'}}\nstore: {instances: 2, kind: redis, url: 'redis://a'}\ngateway:\n  upstreams: {a: {servers: ['http://127.0.0.1:1']}}\n  routes: [{path: /a, upstream: a}]\n")
	_, s, err := config.LoadSource(file)
	if err != nil {
		t.Fatal(err)
	}
	for content, want := range map[string][]string{
		"# new\nlisteners: {gateway: {address: '127.0.0.1:0'}}\nstore:\n  kind: redis\n  url: redis://a\n  instances: 2\ngateway: {upstreams: {a: {servers: ['http://127.0.0.1:1']}}, routes: [{upstream: a, path: /a}]}\n":     nil,
		"listeners: {gateway: {address: '127.0.0.1:0'}}\nstore: {kind: redis, url: 'redis://b'}\ngateway:\n  upstreams: {a: {servers: ['http://127.0.0.1:1']}}\n  routes: [{path: /b, upstream: a}]\nlogging: {level: debug}\n": {"gateway.routes", "logging.level", "store.instances", "store.url"},
	} {
		write(content)
		if got, err := s.Changed(); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v; want %q", content, got, err, want)
		}
	}
	for _, content := range []string{"", "stor: {}\n"} {
		write(content)
		if got, err := s.Changed(); err == nil {
			t.Errorf("%q is taken: %q", content, got)
		}
	}
}
