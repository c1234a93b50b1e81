package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// Rules that keep requests are warned of where nothing does.
func TestCheckQueues(t *testing.T) {
	const gateway = "listeners: {gateway: {address: '127.0.0.1:8000'}}\n" +
		"gateway: {upstreams: {api: {servers: ['http://127.0.0.1:9000']}}, routes: [{upstream: api}]}\n"
	for name, test := range map[string]struct {
		cfg  string
		code int
	}{
		"no gateway": {"queue: {directory: queue}\n", 1},
		"no queue":   {gateway, 1},
		"both":       {gateway + "queue: {directory: queue}\n", 0},
	} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "rules.yaml"), "rules: [{name: r, match: {path: /a}, limit: 5/min, on_limit: queue}]\n")
		write(t, filepath.Join(dir, "sluice.yaml"), test.cfg+"rules: {paths: [rules.yaml]}\n")
		var out strings.Builder
		code := run(t.Context(), []string{"check", filepath.Join(dir, "sluice.yaml")}, &out, &out)
		if code != test.code || strings.Contains(out.String(), "on_limit: queue keeps nothing") != (code == 1) {
			t.Errorf("%s: exit %d, printed\n%s", name, code, &out)
		}
		if code := run(t.Context(), []string{"check", filepath.Join(dir, "rules.yaml")}, &out, &out); code != 0 {
			t.Errorf("the rules alone: exit %d, printed\n%s", code, &out)
		}
	}
}
