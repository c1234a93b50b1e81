package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/internal/testenv/tcptest"
)

// Whatever is between a command and the service, it says what to do next.
func TestLiveAdvice(t *testing.T) {
	nobody := tcptest.FreeAddress(t)
	for _, test := range []struct {
		args string
		want string
	}{
		{"status --admin " + nobody, "start one with: sluice serve --config sluice.yaml\nor say where it is with --admin or SLUICE_ADMIN"},
		{"take /posts --service http://" + nobody, "say where it is with --service or SLUICE_SERVICE"},
		{"top --admin unix://" + filepath.Join(t.TempDir(), "no.sock"), "start one with: sluice serve"},
		{"watch --admin " + nobody, "start one with: sluice serve"},
		{"explain --live /posts --admin " + nobody, "start one with: sluice serve"},
		{"status --admin ftp://x", "write http://127.0.0.1:6070"},
		{"status --token-file /nowhere", "the token: open /nowhere"},

		{"peek", "say which: sluice peek posts-per-user user=ada, or sluice peek --request"},
		{"peek posts ada", `"ada": write name=value`},
		{"peek posts -H 'X-User: ada'", "add --request 'POST /posts'"},
		{"peek posts --request /posts", "leave out posts"},
		{"peek --domain d --request /posts", "use one"},
		{"peek --domain d k", "write name=value"},
		{"peek --request posts", "--request: the path"},
		{"peek --request /posts -H 'A: 1' -H 'A: 2'", "the header A is there twice"},
		{"block posts", "--for 10m"},
		{"block posts --for 0s", "sluice unblock"},
		{"block posts --for -1s", "write a time such as 10m"},
		{"suspend", "sluice suspend posts-per-user"},
		{"resume", "sluice resume posts-per-user"},
		{"take", "sluice take 'POST /posts'"},
		{"take posts-per-user user=ada", "to look at what somebody has left of a rule: sluice peek"},
		{"take -n 0 /", "write 1 to 10000; for more: sluice bench"},
		{"take --cost -1 /", "--cost -1: write a number of at least 1"},
		{"take --domain d k=v --ip 192.0.2.1", "with --domain write KEY=VALUE"},
		{"top -n 0", "write 1 to 1000"},
		{"top --watch --interval 1ns", "at least 100ms"},
		{"watch --interval 1ns", "at least 100ms"},
		{"watch -n -1", "how many intervals"},
		{"queue list -n 0", "write 1 to 1000"},
		{"queue status", "say which: the id is in the status URL"},
		{"queue cancel a b", "say which: the id"},
		{"queue replay", "say which: an id as sluice queue dead lists them, or --all"},
		{"queue replay --all x", "or --all"},
		{"queue list --admin " + nobody, "start one with: sluice serve"},
		{"queue replay --all --admin " + nobody, "start one with: sluice serve"},
		{"explain --live --rules . /", "leave out --rules and --snapshot"},
	} {
		code, out, stderr := sluiceRun(t, words(t, test.args)...)
		if code != term.ExitWrong || out != "" || !strings.Contains(stderr, test.want) {
			t.Errorf("sluice %s: exit %d, want %q in\n%s%s", test.args, code, test.want, out, stderr)
		}
	}
}

// asked has the commands of the test ask a service.
func (p *process) asked(t *testing.T) {
	t.Helper()
	t.Setenv("SLUICE_ADMIN", "http://"+p.admin)
	t.Setenv("SLUICE_SERVICE", "http://"+p.http)
}

// Each testdata/live/*.txt is a transcript like those of TestTranscripts, of commands that ask one service after another.
func TestLiveTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/live/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d transcripts, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			rules, err := filepath.Abs("testdata/live/rules")
			if err != nil {
				t.Fatal(err)
			}
			p := startServe(t, fmt.Sprintf("rules: {paths: [%q]}", rules))
			p.asked(t)
			want := read(t, file)
			got := strings.NewReplacer(p.admin, "ADMIN", p.http, "HTTP", p.grpc, "GRPC", rules, "rules").Replace(transcript(t, want))
			for _, m := range momentary {
				got = m.pattern.ReplaceAllString(got, m.instead)
			}
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o666); err != nil {
					t.Fatal(err)
				}
			} else if got != want {
				t.Errorf("%s differs; go test -update writes what the commands print now:\n%s", file, difference(want, got))
			}
		})
	}
}

// momentary is what is another with each run.
var momentary = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`"\d{4}-\d\d-\d\dT[^"]+"`), `"2026-01-02T03:04:05Z"`},
	{regexp.MustCompile(`(\d{4}-\d\d-\d\d )?\b\d\d:\d\d:\d\d\b`), "03:04:05"},
	{regexp.MustCompile(`(?m)(^[^$\n]*) (\d+(\.\d+)?(d|h|ms|m|s))+\b`), "$1 TIME"},
	{regexp.MustCompile(`(?m)(^[^$\n]*) (\d+(\.\d+)?(d|h|ms|m|s))+\b`), "$1 TIME"}, // a second on the line
	{regexp.MustCompile(`(;t=|Reset: |Retry-After: |retry in |Reset": "|Retry-After": ")\d+`), "${1}0"},
	{regexp.MustCompile(`(_(?:ms|seconds)": )[1-9][0-9.]*`), "${1}1"},
	{regexp.MustCompile(`(digest |digest": ")[0-9a-f]{12}`), "${1}DIGEST"},
}
