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

// Errors of commands for a running service say what to do.
func TestLiveAdvice(t *testing.T) {
	unused := tcptest.FreeAddress(t)
	for _, test := range []struct {
		args string
		want string
	}{
		{"status --admin-url " + unused, "start it with sluice serve --config sluice.yaml\nor set its URL with --admin-url or SLUICE_ADMIN_URL"},
		{"take /posts --service-url http://" + unused, "set its URL with --service-url or SLUICE_SERVICE_URL"},
		{"top --admin-url unix://" + filepath.Join(t.TempDir(), "no.sock"), "start it with sluice serve"},
		{"watch --admin-url " + unused, "start it with sluice serve"},
		{"explain --live /posts --admin-url " + unused, "start it with sluice serve"},
		{"status --admin-url ftp://x", "write http://127.0.0.1:6070"},
		{"status --token-file /nowhere", "token file: /nowhere: there is no such file"},

		{"peek", "a rule is required: write sluice peek posts-per-user user=ada, or sluice peek --request"},
		{"peek posts ada", `"ada": write name=value`},
		{"peek posts -H 'X-User: ada'", "add --request 'POST /posts'"},
		{"peek posts --request /posts", "remove posts"},
		{"peek --domain d --request /posts", "use one"},
		{"peek --domain d k", "write name=value"},
		{"peek --request posts", "--request: the path"},
		{"peek --request /posts -H 'A: 1' -H 'A: 2'", "the header A is given twice"},
		{"block posts", "--for 10m"},
		{"block posts --for 0s", "sluice unblock"},
		{"block posts --for -1s", "write a duration above zero, such as 10m"},
		{"suspend", "sluice suspend posts-per-user"},
		{"resume", "sluice resume posts-per-user"},
		{"take", "sluice take 'POST /posts'"},
		{"take posts-per-user user=ada", "to show the remaining quota of a key: sluice peek"},
		{"take -n 0 /", "write a number from 1 to 10000; for load tests there is sluice bench"},
		{"take --cost -1 /", "--cost -1: write a number from 1 to 2^50; to read the quota use sluice peek"},
		{"take --cost 0 /", "--cost 0: write a number from 1 to 2^50; to read the quota use sluice peek"},
		{"explain --cost 0 /", "--cost 0: write a number from 1 to 2^50"},
		{"block posts --for 9999d", "--for 9999d: write a duration of at most 366d"},
		{"status --admin-url http://" + unused + " --tls-ca /nowhere", "/nowhere"},
		{"peek --request 'GET /%zz'", `the path "/%zz" is not valid: invalid URL escape "%zz"`},
		{"schema foo", `there is no schema "foo": write one of rules, envoy, test`},
		{"password --user a:b", `--user "a:b": basic authentication ends a user name at the first colon`},
		{"take --domain d k=v --ip 192.0.2.1", "with --domain write KEY=VALUE"},
		{"top -n 0", "write a number from 1 to 1000"},
		{"top --watch --interval 1ns", "at least 100ms"},
		{"watch --interval 1ns", "at least 100ms"},
		{"watch -n -1", "-n -1: write a number from 1 to"},
		{"queue list -n 0", "write a number from 1 to 1000"},
		{"queue status", "one item id is required: write the id from the client's status URL"},
		{"queue cancel a b", "one item id is required"},
		{"queue requeue", "one item id or --all is required"},
		{"queue requeue --all x", "or --all"},
		{"queue list --admin-url " + unused, "start it with sluice serve"},
		{"queue requeue --all --admin-url " + unused, "start it with sluice serve"},
		{"explain --live --rules . /", "remove --rules and --snapshot"},
	} {
		code, out, stderr := sluiceRun(t, words(t, test.args)...)
		if code != term.ExitWrong || out != "" || !strings.Contains(stderr, test.want) {
			t.Errorf("sluice %s: exit %d, want %q in\n%s%s", test.args, code, test.want, out, stderr)
		}
	}
}

// asked sets the environment variables so that the commands of the test use this service.
func (p *process) asked(t *testing.T) {
	t.Helper()
	t.Setenv("SLUICE_ADMIN_URL", "http://"+p.admin)
	t.Setenv("SLUICE_SERVICE_URL", "http://"+p.http)
}

// Each testdata/live/*.txt is a transcript like those of TestTranscripts, of commands for one running service.
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
				t.Errorf("%s differs; go test -update writes the new output:\n%s", file, difference(want, got))
			}
		})
	}
}

// momentary lists the values that differ in each run, and their replacements.
var momentary = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`"\d{4}-\d\d-\d\dT[^"]+"`), `"2026-01-02T03:04:05Z"`},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [A-Z0-9+-]+`), "2026-01-02 03:04:05 UTC"},
	{regexp.MustCompile(`(?m)(^[^$\n]*) (\d+(\.\d+)?(d|h|ms|m|s))+\b`), "$1 TIME"},
	{regexp.MustCompile(`(?m)(^[^$\n]*) (\d+(\.\d+)?(d|h|ms|m|s))+\b`), "$1 TIME"}, // the second one in a line
	{regexp.MustCompile(`(;t=|Reset: |Retry-After: |retry in |Reset": "|Retry-After": ")\d+`), "${1}0"},
	{regexp.MustCompile(`(_(?:ms|seconds)": )[1-9][0-9.]*`), "${1}1"},
	{regexp.MustCompile(`(digest |digest": ")[0-9a-f]{12}`), "${1}DIGEST"},
}
