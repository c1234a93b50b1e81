package main

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/admission"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rulefile"
	"github.com/sluiceproject/sluice/rules"
)

// startDemo runs the demo as a program of the name sluice that is not on the PATH, as go run does, and returns what it
// printed, where it keeps its files, and how to end it.
func startDemo(t *testing.T) (guide, files string, end func()) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "a place", "sluice")
	if err := os.Mkdir(filepath.Dir(program), 0o700); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, data, 0o700); err != nil {
		t.Fatal(err)
	}
	files = t.TempDir()
	cmd := exec.Command(program, "demo", "--listen", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), asProgram+"=1", "GORACE=atexit_sleep_ms=0", "TMPDIR="+files)
	var faults bytes.Buffer
	cmd.Stderr = &faults
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil || faults.Len() > 0 {
			t.Errorf("the demo ended with %v\n%s", err, &faults)
		}
	})
	t.Cleanup(end)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		guide += lines.Text() + "\n"
		if strings.HasPrefix(lines.Text(), "ctrl-C") {
			return guide, files, end
		}
	}
	end()
	t.Fatalf("the demo printed only\n%s", guide)
	return "", "", nil
}

// The commands that the demo prints do what it says, pasted into a shell one after the other. At the end nothing is left.
func TestDemoCommands(t *testing.T) {
	t.Parallel()
	guide, files, end := startDemo(t)
	var script strings.Builder
	var commands []string
	for line := range strings.Lines(guide) {
		if command, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "  "); ok {
			commands = append(commands, command)
			if strings.HasSuffix(command, " watch") {
				command += " | head -1" // it does not end by itself
			}
			script.WriteString(command + "\necho ==========\n")
		}
	}
	shell := exec.Command("bash", "--norc", "-s")
	shell.Stdin = strings.NewReader(script.String())
	shell.Env = append(os.Environ(), asProgram+"=1", "GORACE=atexit_sleep_ms=0")
	out, err := shell.CombinedOutput()
	printed := strings.Split(strings.ReplaceAll(string(out), "\r", ""), "==========\n")
	wants := []struct{ command, output string }{
		{"curl -i ", `(?s)^.*HTTP/1.1 200 OK\n.*X-Ratelimit-Limit: 5\nX-Ratelimit-Remaining: 4\n.*\nhello\n$`},
		{"for i in 1 2 3 4 5; ", `(?s)^200\n200\n200\n200\n429\n.*HTTP/1.1 429 Too Many Requests\n.*application/problem\+json\n.*\nRetry-After: .*X-Ratelimit-Retry-After: .*"status":429`},
		{"for i in 1 2; ", `(?s)^HTTP/1.1 200 OK\n.*the export is done\nHTTP/1.1 202 Accepted\n.*\nLocation: /.*"state":"queued"`},
		{"status=", `^$`},
		{"while curl ", `(?s)^{"id":"\w+","state":"queued",.*\n{[^\n]*"state":"done",[^\n]*"result":{"status":200,[^\n]*"body":"the export is done\\n"}}\n$`},
		{"export ", `^$`},
		{"sluice status", `(?s)^fine: .*store +memory, answers\nrules +10 rules, 1 Envoy domain`},
		{"sluice top", `(?s)^most denied of late\n.*hello-per-ip +ip=127.0.0.1 `},
		{"sluice watch", `allowed .*/s  denied .*/s\n$`},
		{"sluice queue list", `(?s)^\d+ queued, \d+ delivering, 0 dead, \d+ done;`},
	}
	if err != nil || len(commands) != len(wants) || len(printed) != len(wants)+1 {
		t.Fatalf("%v: %d commands, want %d:\n%s\n%s", err, len(commands), len(wants), guide, out)
	}
	for i, want := range wants {
		if !strings.HasPrefix(commands[i], want.command) || !regexp.MustCompile(want.output).MatchString(printed[i]) {
			t.Errorf("%s\nprinted\n%s\nwant %s… and %s", commands[i], printed[i], want.command, want.output)
		}
	}
	end()
	if left, err := os.ReadDir(files); len(left) > 0 || err != nil {
		t.Errorf("the demo left %v, %v", left, err)
	}
}

// The rules that are printed are those that run, and do what their tests say.
func TestDemoRules(t *testing.T) {
	var out strings.Builder
	if code := run(t.Context(), []string{"demo", "--rules"}, &out, &out); code != 0 || out.String() != string(demoGatewayRules) {
		t.Errorf("exit %d, printed\n%s", code, &out)
	}
	dir, err := demoDirectory()
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if written, err := os.ReadFile(filepath.Join(dir, demoRulesFile)); err != nil || string(written) != out.String() {
		t.Errorf("%v: the demo runs with\n%s", err, written)
	}
	for _, args := range [][]string{
		{"test", "demo/rules_test.yaml"}, {"fmt", "--check", "demo/rules.yaml", "demo/rules_test.yaml"}, {"check", filepath.Join(dir, "rules")},
	} {
		out.Reset()
		if code := run(t.Context(), args, &out, &out); code != 0 {
			t.Errorf("sluice %s: exit %d\n%s", strings.Join(args, " "), code, &out)
		}
	}
}

// Where something else listens, the demo goes elsewhere and says so, unless somebody chose the place.
func TestDemoTaken(t *testing.T) {
	l, err := net.Listen("tcp", freePort)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := l.Addr().String()
	p, err := (&demoFlags{listen: taken}).places()
	if err != nil || p.variables["GATEWAY"] != freePort || !slices.Contains(p.taken, taken) {
		t.Errorf("places %v, %v", p, err)
	}
	if _, err := (&demoFlags{listen: taken, chosen: true}).places(); err == nil || !strings.Contains(err.Error(), "--listen 127.0.0.1:PORT") {
		t.Errorf("chosen: %v", err)
	}
	var out strings.Builder
	g := demoGuide{
		gateway: "127.0.0.1:1", http: "127.0.0.1:2", grpc: "127.0.0.1:3", admin: "127.0.0.1:4",
		taken: []string{"127.0.0.1:6070", "127.0.0.1:8000"},
	}
	g.write(&out)
	for _, want := range []string{
		"something else listens on 127.0.0.1:6070, 127.0.0.1:8000.", "Envoy on 127.0.0.1:3, operators on 127.0.0.1:4.",
		"SLUICE_ADMIN=http://127.0.0.1:4 SLUICE_SERVICE=http://127.0.0.1:2\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("there is no %q in\n%s", want, &out)
		}
	}
}

// The made-up clients keep every rule busy, are over the limits of most, are few, and stay away from what users try.
func TestDemoTraffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, err := rulefile.Parse(rulefile.Options{}, rulefile.Source{Name: "rules.yaml", Data: demoGatewayRules})
		if err != nil {
			t.Fatal(err)
		}
		set, err := rules.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		requests, denied := 0, map[string]int{}
		limiter, err := sluice.NewRules(memstore.New(), nil)
		if err != nil {
			t.Fatal(err)
		}
		control, next := admission.New(limiter, func() *rules.Set { return set }, admission.Config{}), demoHandler()
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			a, err := control.Admit(w, r, nil, admission.Try{})
			switch {
			case err != nil:
				admission.WriteError(w, r, err, nil)
			case a.Outcome == admission.Denied:
				mu.Lock()
				denied[a.Rule]++
				mu.Unlock()
				a.WriteDenial(w, r)
				a.Done(r.Context(), http.StatusTooManyRequests)
			default:
				a.SetHeaders(w.Header(), r)
				a.Serve(next, w, r)
			}
		})
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
		defer stop()
		demoTraffic(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			requests++
			mu.Unlock()
			if strings.HasPrefix(r.RemoteAddr, "127.") || r.Header.Get("X-User") == "you" {
				t.Errorf("a made-up client is like a user: %s %s", r.RemoteAddr, r.Header.Get("X-User"))
			}
			handler.ServeHTTP(w, r)
		}))
		if requests < 10*60*2 || requests > 10*60*10 {
			t.Errorf("%d requests in ten minutes", requests)
		}
		for _, rule := range []string{
			"posts-per-user", "accounts-per-ip", "failed-logins-per-ip", "rewards-per-device", "exports-per-user", "downloads-per-user",
		} {
			if denied[rule] == 0 {
				t.Errorf("nobody is over the limit of %s: %v", rule, denied)
			}
		}
	})
}

func TestUse(t *testing.T) {
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--help"}, 0, "sluice demo"},
		{[]string{"demo", "--help"}, 0, "sluice demo --listen"},
		{[]string{"--version"}, 0, "version"},
		{[]string{"dem"}, 2, "Did you mean this?\n\tdemo"},
		{[]string{"demo", "now"}, 2, "now"},
		{[]string{"demo", "--listen", "nowhere"}, 2, "choose another address with --listen"},
	} {
		var out strings.Builder
		code := run(t.Context(), test.args, &out, &out)
		if code != test.code || !strings.Contains(out.String(), test.want) {
			t.Errorf("sluice %s: exit %d, printed\n%s\nwant exit %d and %q",
				strings.Join(test.args, " "), code, out.String(), test.code, test.want)
		}
	}
}
