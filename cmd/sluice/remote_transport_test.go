package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/internal/testenv/certtest"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
)

// ask is a command with its expected exit code and a part of its output.
type ask struct {
	args string
	code int
	want string
}

func (a ask) run(t *testing.T) {
	t.Helper()
	code, out, stderr := sluiceRun(t, words(t, a.args)...)
	if code != a.code || !strings.Contains(out+stderr, a.want) {
		t.Errorf("sluice %s: exit %d, want %d and %q in\n%s%s", a.args, code, a.code, a.want, out, stderr)
	}
}

// Without a token, or with a wrong one, the error says how to set it.
func TestLiveToken(t *testing.T) {
	dir := t.TempDir()
	right, wrong := filepath.Join(dir, "right"), filepath.Join(dir, "wrong")
	write(t, right, "0123456789abcdef\nfedcba9876543210\n")
	write(t, wrong, "0123456789abcdeX\n")
	p := startServe(t, fmt.Sprintf("admin: {token_file: %q}\nlisteners: {admin: {address: '127.0.0.1:0'}, "+
		"grpc: {address: '127.0.0.1:0'}, http: {address: '127.0.0.1:0'}}", right))
	p.asked(t)
	for _, a := range []ask{
		{"status", term.ExitWrong, "requires a token: set a file with the token of its admin.token_file with --token-file or SLUICE_TOKEN_FILE"},
		{"watch", term.ExitWrong, "requires a token"},
		{"suspend x", term.ExitWrong, "requires a token"},
		{"status --token-file " + wrong, term.ExitWrong, "the token in " + wrong + " is not accepted by the service"},
		{"status --token-file " + right, term.ExitFine, "store      memory: available"},
		{"take --domain demo remote_address=10.0.0.1", term.ExitFine, "4 of 5 left"}, // the check API needs no token
	} {
		a.run(t)
	}
	t.Setenv("SLUICE_TOKEN_FILE", right)
	ask{"status", term.ExitFine, "memory"}.run(t)
	if _, port, err := net.SplitHostPort(p.admin); err != nil {
		t.Error(err)
	} else {
		ask{"status --admin-url http://0.0.0.0:" + port, term.ExitFine, "warning: the token is sent to http://0.0.0.0:" + port + " unencrypted"}.run(t)
	}
}

// Commands reach a service over TLS, with a client certificate if it requires one, and over a Unix socket.
func TestLiveWays(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	ca := certtest.New(t)
	pair := ca.Issue(t, "localhost")
	write(t, in("ca"), string(ca.PEM))
	write(t, in("cert"), string(pair.Cert))
	write(t, in("key"), string(pair.Key))
	p := startServe(t, fmt.Sprintf(`
listeners:
  grpc: {address: 'off'}
  http: {address: 'unix://%s'}
  admin: {address: '127.0.0.1:0', tls: {cert_file: %q, key_file: %q, client_ca_file: %q}}
`, in("sock"), in("cert"), in("key"), in("ca")))
	_, port, err := net.SplitHostPort(p.admin)
	if err != nil {
		t.Fatal(err)
	}
	at := "status --admin-url https://localhost:" + port
	known := at + " --tls-ca " + in("ca")
	for _, a := range []ask{
		{known + " --tls-cert " + in("cert") + " --tls-key " + in("key"), term.ExitFine, "healthy: sluice"},
		{known, term.ExitWrong, "set it with --tls-cert and --tls-key"},
		{known + " --tls-cert " + in("cert"), term.ExitWrong, "both or neither"},
		{at, term.ExitWrong, "set the CA file with --tls-ca or SLUICE_TLS_CA"},
		{strings.Replace(known, "localhost", "127.0.0.1", 1), term.ExitWrong, "is for another host name"},
		{strings.Replace(at, "https", "http", 1), term.ExitWrong, "uses TLS: write https://"},
		{"take --service-url unix://" + in("sock") + " --domain demo remote_address=10.0.0.1", term.ExitFine, "4 of 5 left"},
		{"status --admin-url unix://" + in("sock"), term.ExitWrong, "does not serve the admin API: /v1/status returned 404: set the URL of the service with --admin-url"},
	} {
		a.run(t)
	}
	plain := startServe(t, "")
	for _, a := range []ask{
		{"status --admin-url https://" + plain.admin, term.ExitWrong, "does not use TLS: write http://"},
		{"take / --service-url http://" + plain.admin, term.ExitWrong, "no such path"},
		{"reload --admin-url http://" + plain.admin, term.ExitWrong, "the rules are built in: set rules.paths"},
	} {
		a.run(t)
	}
}

// Commands show that the store is unavailable, and that it is available again.
func TestLiveStoreAway(t *testing.T) {
	redis := redistest.Start(t)
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, rules, "rules:\n  - {name: kind, match: {path: /a}, limit: 5/h}\n  - {name: open, match: {path: /b}, limit: 5/h, on_failure: open}\n")
	p := startServe(t, fmt.Sprintf("rules: {paths: [%q]}\nstore: {kind: redis, url: %q}", rules, redis.URL()))
	p.asked(t)
	ask{"status", term.ExitFine, "store      redis " + redis.Addr + ": available"}.run(t)
	redis.Kill()
	ask{"status", term.ExitFindings, "store      redis " + redis.Addr + ": unavailable: on_failure of each rule decides"}.run(t)
	ask{"take /a", term.ExitFine, "kind: 4 of 5 left, fully reset in 12m (store unavailable: on_failure is local)"}.run(t)
	ask{"take /b", term.ExitFine, "open: limit 5 (store unavailable: on_failure is open)"}.run(t)
	ask{"peek open", term.ExitFine, "open: limit 5 (store unavailable: on_failure is open)"}.run(t)
	ask{"explain --live --only-matching /b", term.ExitFine, "allowed: store unavailable: on_failure of open decides (open)\n"}.run(t)
	ask{"explain --live --only-matching /b", term.ExitFine, "  limit 5/h: not counted (store unavailable: on_failure is open)\n"}.run(t)
	ask{"reset kind", term.ExitWrong, "store unavailable"}.run(t)
	if err := redis.Restart(); err != nil {
		t.Fatal(err)
	}
	late := time.After(hangs) // reconnecting takes time
	for code, _, _ := sluiceRun(t, "status"); code != term.ExitFine; code, _, _ = sluiceRun(t, "status") {
		select {
		case <-late:
			t.Fatal("the store is available again, and status does not show it")
		case <-time.After(20 * time.Millisecond): // each command leaves an idle connection, of which the listener accepts a limited number
		}
	}
	ask{"status", term.ExitFine, "store      redis " + redis.Addr + ": available"}.run(t)
}

// sluice reload prints the errors of rule files.
func TestLiveReload(t *testing.T) {
	rules := rulesDir(t, "  - {key: k, rate_limit: {unit: year, requests_per_unit: 1}}\n")
	p := startServe(t, fmt.Sprintf("rules: {paths: [%q]}", rules))
	p.asked(t)
	ask{"reload", term.ExitFine, "the rules have not changed, digest "}.run(t)
	write(t, filepath.Join(rules, "d.yaml"), "domain: d\ndescriptors:\n  - {key: k, rate_limit: {unit: yaer, requests_per_unit: x}}\n")
	_, out, _ := sluiceRun(t, "reload")
	for _, want := range []string{"the previous rule set stays in use:\n", "d.yaml:3:", "'yaer'", "requests_per_unit"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	ask{"reload -o json", term.ExitFindings, `"line": 3`}.run(t)
	ask{"status", term.ExitFindings, "reload failed "}.run(t)
	write(t, filepath.Join(rules, "d.yaml"), "domain: d\ndescriptors:\n  - {key: k, rate_limit: {unit: year, requests_per_unit: 2}}\n")
	ask{"reload", term.ExitFine, "digest "}.run(t) // the service may have reloaded the file before
	ask{"status", term.ExitFine, "healthy: "}.run(t)
}

// Shells complete the rules and domains of the running service, and nothing without a service.
func TestLiveCompletion(t *testing.T) {
	rules, err := filepath.Abs("testdata/live/rules")
	if err != nil {
		t.Fatal(err)
	}
	complete := func(want string, args ...string) {
		t.Helper()
		_, out, _ := sluiceRun(t, append([]string{cobra.ShellCompNoDescRequestCmd}, args...)...)
		if got := strings.TrimSpace(out); got != strings.TrimSpace(want) {
			t.Errorf("completion of %q: %q, want %q", args, got, want)
		}
	}
	t.Setenv("SLUICE_ADMIN_URL", "http://127.0.0.1:1")
	complete(":4", "peek", "")
	startServe(t, fmt.Sprintf("rules: {paths: [%q]}", rules)).asked(t)
	const marketing, numbers = "messaging/message_type=marketing\n", "messaging/to_number/message_type\n"
	all := "posts-per-user\ntokens\ntrial\nmixed\n" + marketing + numbers
	complete(all+":4", "peek", "")
	complete(all+":4", "reset", "")
	complete(all+":4", "block", "")
	complete(all+":4", "watch", "")
	complete("token=\nip=\n:6", "unblock", "tokens", "")
	complete("to_number=\nmessage_type=\n:6", "peek", strings.TrimSpace(numbers), "")
	complete("messaging\n:4", "peek", "--domain", "")
	complete(":4", "resume", "")
	ask{"suspend trial tokens", term.ExitFine, "tokens, trial"}.run(t)
	complete("tokens\n:4", "resume", "trial", "")
	complete("posts-per-user\nmixed\n"+marketing+numbers+":4", "suspend", "")
	_, out, _ := sluiceRun(t, cobra.ShellCompRequestCmd, "peek", "")
	if !strings.Contains(out, "posts-per-user\t3/day, 20/week\n") {
		t.Errorf("completions have no limits as descriptions:\n%s", out)
	}
}

// With -o json commands for a running service print JSON.
func TestLiveJSON(t *testing.T) {
	startServe(t, "").asked(t)
	for _, args := range []string{
		"status", "status --rules", "doctor", "top", "top --near-limit", "take --domain demo remote_address=10.0.0.1", "take /",
		"peek demo/remote_address remote_address=10.0.0.1", "reset --domain demo remote_address=10.0.0.1",
		"block --domain demo remote_address=10.0.0.1 --for 1m", "unblock --domain demo remote_address=10.0.0.1",
		"suspend demo/remote_address", "resume demo/remote_address", "explain --live /", "watch -n 1 --interval 100ms",
	} {
		code, out, stderr := sluiceRun(t, append(words(t, args), "-o", "json")...)
		if code != term.ExitFine || !json.Valid([]byte(out)) || stderr != "" {
			t.Errorf("sluice %s -o json: exit %d\n%s%s", args, code, out, stderr)
		}
	}
}

// watch shows each request of other clients once, and exits with 0 on ctrl-C.
func TestLiveWatch(t *testing.T) {
	rules := rulesDir(t, "  - {key: k, rate_limit: {unit: year, requests_per_unit: 5}}\n")
	startServe(t, fmt.Sprintf("rules: {paths: [%q]}", rules)).asked(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	reader, writer := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"watch", "--interval", "100ms", "-o", "json"}, writer, writer)
		writer.Close()
	}()
	lines := bufio.NewScanner(reader)
	if !lines.Scan() { // the command has connected
		t.Fatalf("watch exited: %v", lines.Err())
	}
	if !strings.HasPrefix(lines.Text(), "{") {
		t.Errorf("a line is not a JSON object: %q", lines.Text())
	}
	ask{"take -n 7 --domain d k=v", term.ExitFindings, "5 allowed, 2 denied"}.run(t)
	var seen adminmsg.Counts
	for seen.Allowed+seen.Denied < 7 && lines.Scan() {
		var e adminmsg.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("%v: %s", err, lines.Text())
		}
		for _, r := range e.Rules {
			seen.Allowed += r.Allowed
			seen.Denied += r.Denied
		}
	}
	stop()
	go func() { _, _ = io.Copy(io.Discard, reader) }()
	if code := <-ended; code != term.ExitFine || seen.Allowed != 5 || seen.Denied != 2 {
		t.Errorf("watch exits with %d after %+v", code, seen)
	}
}
