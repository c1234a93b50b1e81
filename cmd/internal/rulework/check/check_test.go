package check_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/cmd/internal/rulework/check"
)

// One run reports the errors of a configuration, the missing rule files that it names, and the errors of the existing
// ones, without consequences of the missing files.
func TestConfigurationAndRules(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("sluice.yaml", `listeners: {http: {address: 1}}
rules: {paths: [missing.yaml, there.yaml]}
gateway:
  upstreams: {api: {servers: ["http://h"]}}
  routes: [{upstream: nosuch}]
`)
	write("there.yaml", "rules:\n  - {name: a, limit: 1/s, per: [declared-elsewhere]}\n  - {name: a, limit: 5}\n")
	report, err := check.Files(t.Context(), check.Options{
		IsAccounts:     func([]byte) bool { return false },
		Authentication: func(*config.Authentication) error { return nil },
		Start:          func(*config.Config) ([]error, error) { t.Error("started with errors"); return nil, nil },
	}, []string{filepath.Join(dir, "sluice.yaml")})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range report.Findings {
		got = append(got, fmt.Sprintf("%s:%d: %s", filepath.Base(f.File), f.Line, f.Message))
	}
	want := []string{
		"sluice.yaml:1: listeners.http.address", "sluice.yaml:4: gateway: the listener is off", "sluice.yaml:5: gateway.routes.upstream",
		"sluice.yaml:2: rules.paths: " + filepath.Join(dir, "missing.yaml") + ": there is no such file or directory", "there.yaml:3: limit: 5 has no unit", "there.yaml:3: a rule with this name",
	}
	for _, w := range want {
		if !strings.Contains(strings.Join(got, "\n"), w) {
			t.Errorf("not reported: %s", w)
		}
	}
	if len(got) != len(want) || report.Digest != "" {
		t.Errorf("digest %q, reported\n%s", report.Digest, strings.Join(got, "\n"))
	}
}
