package main

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/cmd/internal/testenv/forwardauthtest"
	"github.com/sluiceproject/sluice/internal/testenv/tcptest"
)

func TestArguments(t *testing.T) {
	for _, tt := range []struct{ args, want []string }{
		{[]string{"sluice", "check", "x"}, []string{"check", "x"}},
		{[]string{"/bin/ratelimit"}, []string{"ratelimit"}},
		{[]string{"/bin/ratelimit", "--whatever"}, []string{"ratelimit"}},
		{[]string{"sluice"}, nil},
		{nil, nil},
	} {
		if got := arguments(tt.args); !slices.Equal(got, tt.want) {
			t.Errorf("%q becomes %q, want %q", tt.args, got, tt.want)
		}
	}
}

func TestRatelimitSaysWhatIsWrong(t *testing.T) {
	t.Setenv("PORT", "eighty")
	var stderr bytes.Buffer
	if code := run(t.Context(), []string{"ratelimit"}, &stderr, &stderr); code != term.ExitWrong ||
		!strings.Contains(stderr.String(), "PORT: is \"eighty\": write a whole number") {
		t.Errorf("exit %d:\n%s", code, &stderr)
	}
}

// Operator commands that reach sluice ratelimit instead of sluice serve report that, and where it shows its state.
func TestOperateBesideRatelimit(t *testing.T) {
	directory := t.TempDir()
	write(t, filepath.Join(directory, "d.yaml"), "domain: d\ndescriptors: [{key: k, rate_limit: {unit: minute, requests_per_unit: 2}}]\n")
	debug, service := tcptest.FreeAddress(t), tcptest.FreeAddress(t)
	_, port, _ := net.SplitHostPort(debug)
	_, servicePort, _ := net.SplitHostPort(service)
	cmd := exec.Command(os.Args[0], "ratelimit")
	cmd.Env = append(os.Environ(), asProgram+"=1", "GORACE=atexit_sleep_ms=0", "RUNTIME_ROOT="+directory, "RUNTIME_SUBDIRECTORY=.", "RUNTIME_WATCH_ROOT=false",
		"USE_STATSD=false", "BACKEND_TYPE=memory", "HOST=127.0.0.1", "PORT="+servicePort, "GRPC_HOST=127.0.0.1", "GRPC_PORT=0", "DEBUG_HOST=127.0.0.1", "DEBUG_PORT="+port)
	forwardauthtest.Start(t, debug, cmd)
	for _, args := range []string{"status", "doctor", "top", "watch", "peek a", "suspend a", "queue list", "reload"} {
		code, out, err := sluiceRun(t, append(strings.Fields(args), "--admin-url", "http://"+debug)...)
		if code != term.ExitWrong || out != "" || !strings.Contains(err, "has no admin API") || !strings.Contains(err, "http://"+debug+"/rlconfig") {
			t.Errorf("sluice %s: exit %d, %s%s", args, code, out, err)
		}
	}
	for _, args := range []string{"take /a --service-url http://" + service, "take --domain d k=v --service-url http://" + service, "status --admin-url http://" + service} {
		code, out, err := sluiceRun(t, strings.Fields(args)...)
		if code != term.ExitWrong || out != "" || !strings.Contains(err, "sluice ratelimit or envoyproxy/ratelimit") || !strings.Contains(err, "/rlconfig") || !strings.Contains(err, "sluice serve") {
			t.Errorf("sluice %s: exit %d, %s%s", args, code, out, err)
		}
	}
	code, out, err := sluiceRun(t, "take", "/a", "--service-url", "http://"+debug)
	if code != term.ExitWrong || out != "" || !strings.Contains(err, "has no check API") || !strings.Contains(err, "http://"+debug+"/rlconfig") {
		t.Errorf("sluice take at the debug port: exit %d, %s%s", code, out, err)
	}
}
