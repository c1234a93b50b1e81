package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/cmd/internal/testenv/rlstest"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
)

// haveDenied sends requests of a key until it is denied. The values contain no characters with a special meaning in rlstest.
func haveDenied(t *testing.T, client pb.RateLimitServiceClient, ask string) {
	t.Helper()
	for range 2 {
		rlstest.Answer(t.Context(), client, "d", ask)
	}
	if got := rlstest.Answer(t.Context(), client, "d", ask); !strings.HasPrefix(got, "OVER_LIMIT") {
		t.Fatalf("%s: %s", ask, got)
	}
}

// Denials are logged as samples, with keys only if the configuration asks for them.
func TestServeLogsDenials(t *testing.T) {
	rules := rulesDir(t, "  - {key: user, rate_limit: {unit: year, requests_per_unit: 1}}\n")
	secret := filepath.Join(t.TempDir(), "secret")
	write(t, secret, "correct horse battery staple")
	start := func(logging string) *process {
		return startServe(t, fmt.Sprintf("rules: {paths: [%q]}\nlogging: {%s}\n", rules, logging))
	}
	line := func(logging, user string) string {
		p := start(logging)
		haveDenied(t, p.client(t), "user="+user)
		return p.await(t, "msg=denied")
	}
	const canary = "canary-5319"
	first := line(fmt.Sprintf("secret_file: %q", secret), canary)
	for _, part := range []string{"rule=d/user ", `key="user=~`, `limit="1/365day fixed_window"`, "retry_after=", "source=store"} {
		if !strings.Contains(first, part) {
			t.Errorf("no %s in %s", part, first)
		}
	}
	key := func(line string) string { _, rest, _ := strings.Cut(line, "key="); return strings.Fields(rest)[0] }
	if second := line(fmt.Sprintf("secret_file: %q", secret), canary); key(first) != key(second) {
		t.Errorf("instances with the same secret log different hashes:\n%s\n%s", first, second)
	}
	if other := line("", canary); key(first) == key(other) || strings.Contains(first+other, canary) {
		t.Errorf("an instance with another secret:\n%s\n%s", first, other)
	}
	if plain := line("keys: plain", canary); !strings.Contains(plain, `key="user=`+canary) {
		t.Errorf("plain: %s", plain)
	}
	if none := line("keys: none", canary); strings.Contains(none, "key=") {
		t.Errorf("none: %s", none)
	}

	p := start("denials: off")
	haveDenied(t, p.client(t), "user="+canary)
	p.signal(t, syscall.SIGTERM)
	<-p.ended
	if all := strings.Join(p.log(), "\n"); strings.Contains(all, "denied") {
		t.Errorf("off: %s", all)
	}
}

// A flood of denials and store errors produces only a few log lines, in JSON too, and none contains request data.
func TestServeLogsFlood(t *testing.T) {
	redis := redistest.Start(t)
	p := startServe(t, fmt.Sprintf("rules: {paths: [%q]}\nstore: {kind: redis, url: '%s'}\nlogging: {denials_per_second: 1}\n",
		rulesDir(t, "  - {key: user, rate_limit: {unit: year, requests_per_unit: 1, on_failure: closed}}\n"), redis.URL()))
	client := p.client(t)
	haveDenied(t, client, "user=canary-5319")
	redis.Kill()
	const asked = 2000
	for i := range asked {
		if got := rlstest.Answer(t.Context(), client, "d", fmt.Sprint("user=canary-", i)); !strings.HasPrefix(got, "OVER_LIMIT") {
			t.Fatal(got)
		}
	}
	// /readyz succeeds while the rules can decide, and fails during the shutdown.
	if got := p.get(t, "/readyz"); got != http.StatusOK {
		t.Errorf("/readyz: status %d while the rules can decide", got)
	}
	p.signal(t, syscall.SIGTERM)
	<-p.ended
	lines := p.log()
	all := strings.Join(lines, "\n")
	if strings.Contains(all, "canary") {
		t.Error("the log contains keys")
	}
	if len(lines) > 30 || !strings.Contains(all, "store unavailable: fail modes decide") {
		t.Errorf("%d requests with store errors produced %d lines:\n%s", asked, len(lines), all)
	}
}

// With format json all lines are JSON, with any request data.
func TestServeLogsJSON(t *testing.T) {
	dir := rulesDir(t, "  - {key: user, rate_limit: {unit: year, requests_per_unit: 1}}\n")
	p := launch(t, fmt.Sprintf("rules: {paths: [%q]}\nlogging: {format: json, keys: plain}\n", dir))
	var serving struct{ Grpc, HTTP string }
	if err := json.Unmarshal([]byte(p.await(t, `"msg":"serving"`)), &serving); err != nil || serving.HTTP == "" {
		t.Fatal(err, serving)
	}
	p.grpc = serving.Grpc
	client := p.client(t)
	for range 3 {
		if _, err := client.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{
			{Entries: []*common.RateLimitDescriptor_Entry{{Key: "user", Value: "a\n{\u009b31m\x1b[0m"}}},
		}}); err != nil {
			t.Fatal(err)
		}
	}
	var line struct{ Rule, Key string }
	if err := json.Unmarshal([]byte(p.await(t, `"msg":"denied"`)), &line); err != nil {
		t.Fatal(err)
	}
	if want := `user="a\n{\u009b31m\x1b[0m"`; line.Rule != "d/user" || line.Key != want {
		t.Errorf("got %+v, want %s", line, want)
	}
}

// A weak secret is rejected.
func TestServeWeakSecret(t *testing.T) {
	directory := t.TempDir()
	write(t, filepath.Join(directory, "secret"), "hunter2\n")
	file := filepath.Join(directory, "sluice.yaml")
	for name, want := range map[string]string{"secret": "openssl rand -hex 32", "none": "no such file"} {
		write(t, file, fmt.Sprintf("logging: {secret_file: %s}\nlisteners: {grpc: {address: '127.0.0.1:0'}, http: {address: off}}\n", name))
		code, _, stderr := sluiceRun(t, "serve", "--config", file)
		if code != term.ExitWrong || !strings.Contains(stderr, want) || strings.Contains(stderr, "hunter2") {
			t.Errorf("exit %d, %s", code, stderr)
		}
	}
}
