package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// sluice ratelimit --check reads the same files as the service with the same variables: with any name, in subdirectories, and test
// files with a domain. It reports all errors of the service and the warnings of sluice check.
func TestRatelimitCheck(t *testing.T) {
	const good = "domain: DOMAIN\ndescriptors:\n  - {key: a, rate_limit: {unit: day, requests_per_unit: 5}}\n"
	const eon = "domain: DOMAIN\ndescriptors:\n  - {key: a, rate_limit: {unit: eon, requests_per_unit: 5}}\n"
	for name, tt := range map[string]struct {
		files   map[string]string
		environ map[string]string
		args    []string
		code    int
		want    []string // parts of the output
		not     string   // not part of the output
	}{
		"good": {files: map[string]string{"a": good, "below/b.yaml": good, "c_test.yaml": good, "d_test.yaml": "tests: []\n"}, want: []string{
			"ok: 1 limit of domain a, 1 limit of domain below-b.yaml, 1 limit of domain c_test.yaml in 3 files, digest ",
		}},
		"errors in all files": {files: map[string]string{
			"a": eon, "below/b.conf": eon, "c_test.yaml": eon, "d.yaml": "descriptors: []\n",
			"e.yaml": strings.ReplaceAll(good, "unit: day", "unit: day, algorithm: token_bucket, burst: 3"), "f.yaml": good, "..data/a": eon,
		}, code: term.ExitFindings, want: []string{
			"config/a:3:33: error: invalid rate limit unit 'eon'", "config/below/b.conf:3:33: error: invalid", "config/c_test.yaml:3:33: error: invalid",
			"config/d.yaml:1:1: error: config file cannot have empty domain", "4 errors in 4 files",
		}, not: "..data"},
		"errors of the service only": {files: map[string]string{
			"e.yaml": strings.ReplaceAll(good, "unit: day", "unit: day, algorithm: token_bucket, burst: 3"),
		}, code: term.ExitFindings, want: []string{"config/e.yaml:3:5: error: rate_limit: `sluice ratelimit` counts exactly"}},
		"domains in two files": {
			files: map[string]string{"a": "domain: d\n", "b": "domain: d\n"}, code: term.ExitFindings, want: []string{"duplicate domain 'd' in config file"},
		},
		"merged":         {files: map[string]string{"a": "domain: d\n", "b": "domain: d\n"}, environ: map[string]string{"MERGE_DOMAIN_CONFIG": "true"}, want: []string{"ok: "}},
		"hidden":         {files: map[string]string{"a": good, ".b": eon}, code: term.ExitFindings, want: []string{"config/.b:3:33: error"}},
		"hidden skipped": {files: map[string]string{"a": good, ".b": eon}, environ: map[string]string{"RUNTIME_IGNOREDOTFILES": "true"}, want: []string{"ok: "}},
		"subdirectory": {
			files: map[string]string{"ratelimit/config/a": eon}, environ: map[string]string{"RUNTIME_SUBDIRECTORY": "config/ratelimit"}, code: term.ExitFindings,
			want: []string{"ratelimit/config/a:3:33: error"},
		},
		"a warning":          {files: map[string]string{"a": "domain: d\ndescriptors:\n  - {key: a, value: b}\n"}, code: term.ExitFindings, want: []string{"warning"}},
		"warnings are shown": {files: map[string]string{"a": "domain: d\ndescriptors:\n  - {key: a, value: b}\n"}, args: []string{"--warnings=show"}, want: []string{"warning"}},
		"no directory":       {code: term.ExitWrong, want: []string{"not found", "RUNTIME_ROOT"}},
		"no files":           {files: map[string]string{"..data": ""}, code: term.ExitWrong, want: []string{"no rule files in "}},
		"a wrong variable":   {files: map[string]string{"a": good}, environ: map[string]string{"PORT": "eighty"}, code: term.ExitWrong, want: []string{"PORT: is \"eighty\": write a whole number"}},
		"a control plane": {
			files: map[string]string{"a": eon}, environ: map[string]string{"CONFIG_TYPE": "GRPC_XDS_SOTW"}, code: term.ExitWrong,
			want: []string{"CONFIG_TYPE=GRPC_XDS_SOTW: the control plane sends the rules: there are no files to check"},
		},
		"a variable that does nothing": {files: map[string]string{"a": good}, environ: map[string]string{"REDIS_POOL_SIZE": "5"}, want: []string{"warning: REDIS_POOL_SIZE", "ok: "}},
		"no warning of variables": {
			files: map[string]string{"a": good}, environ: map[string]string{"SLUICE_FOO": "5"}, args: []string{"--warnings=off"}, want: []string{"ok: "}, not: "SLUICE_FOO",
		},
		"warnings without check": {args: []string{"--check=false", "--warnings=show"}, code: term.ExitWrong, want: []string{"--warnings needs --check"}},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for file, text := range tt.files {
				path := filepath.Join(root, "config", file)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				write(t, path, strings.ReplaceAll(text, "DOMAIN", strings.ReplaceAll(file, "/", "-")))
			}
			t.Setenv("RUNTIME_ROOT", root)
			for variable, value := range tt.environ {
				t.Setenv(variable, value)
			}
			code, out, errs := sluiceRun(t, append([]string{"ratelimit", "--check"}, tt.args...)...)
			for _, want := range tt.want {
				if code != tt.code || !strings.Contains(out+errs, want) || tt.not != "" && strings.Contains(out+errs, tt.not) {
					t.Errorf("exit %d, want %d and %q in\n%s%s", code, tt.code, want, out, errs)
				}
			}
		})
	}
}
