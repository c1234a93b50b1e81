package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/loadgen/bench"
	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/internal/testenv/tcptest"
)

// The service's demo rule allows exactly five requests for each address, with any number of clients.
func TestBenchServe(t *testing.T) {
	p := startServe(t, "logging: {level: info}\n")
	page := filepath.Join(t.TempDir(), "report.html")
	const keys = 20
	args := []string{
		"bench", "rls://" + p.grpc, "--domain", "demo", "--descriptor", fmt.Sprintf("remote_address=10.0.0.{1..%d}", keys),
		"--requests", "2000", "--concurrency", "16",
	}
	code, out, stderr := sluiceRun(t, append(args, "-o", "json", "--html", page, "--threshold", "errors<1", "--threshold", "denied>0")...)
	var r bench.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != term.ExitFine {
		t.Fatalf("exit %d, %v: %s%s", code, err, out, stderr)
	}
	// The window may end during the test.
	if r.Requests != 2000 || r.Errors != 0 || r.Allowed+r.Denied != 2000 || r.Allowed != 5*keys && r.Allowed != 10*keys {
		t.Errorf("%+v", r)
	}
	if r.Loop != "closed" || r.Keys != keys || r.Concurrency != 16 || r.Connections != 4 || len(r.Thresholds) != 2 || r.Latency["p99"] <= 0 {
		t.Errorf("%+v", r)
	}
	if text := read(t, page); !strings.Contains(text, "<svg") || !strings.Contains(text, p.grpc) {
		t.Errorf("the page is\n%s", text)
	}
	code, out, _ = sluiceRun(t, append(args, "--rate", "20000", "--threshold", "errors<1", "--threshold", "denied<1")...)
	if code != term.ExitFindings || !strings.Contains(out, "✓ errors<1") || !strings.Contains(out, "✗ denied<1") || !strings.Contains(out, "open loop") {
		t.Errorf("exit %d:\n%s", code, out)
	}
}

func TestBenchHTTP(t *testing.T) {
	var checks, others atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		var ask struct {
			Domain      string
			Descriptors [][]struct{ Key, Value string }
			Cost        int
		}
		switch {
		case r.URL.Path != "/v1/check":
			if r.Method == "PUT" && r.Header.Get("X-User") == "u"+string(b) && r.Header.Get("Content-Type") == "application/json" {
				others.Add(1)
			}
			w.WriteHeader(http.StatusTooManyRequests)
		case json.Unmarshal(b, &ask) != nil, r.Method != "POST", r.Header.Get("Content-Type") != "application/json",
			ask.Domain != "demo", len(ask.Descriptors) != 2, ask.Descriptors[0][1].Key != "b", ask.Cost != 2:
			w.WriteHeader(http.StatusBadRequest)
		default:
			checks.Add(1)
		}
	}))
	defer server.Close()
	for _, test := range []struct {
		args []string
		want string
		seen *atomic.Int64
	}{
		{[]string{"/v1/check", "--domain", "demo", "--descriptor", "a={1..9},b=c", "--descriptor", "d=e", "--cost", "2"}, `"200": 60`, &checks},
		{[]string{"/me/{1..3}", "-X", "PUT", "-H", "X-User: u{key}", "--keys", "7", "--body", "{key}"}, `"429": 60`, &others},
	} {
		args := append([]string{"bench", server.URL + test.args[0], "-o", "json", "-n", "60", "--concurrency", "3"}, test.args[1:]...)
		code, out, stderr := sluiceRun(t, args...)
		if code != term.ExitFine || !strings.Contains(out, test.want) || test.seen.Load() != 60 {
			t.Errorf("%q: exit %d, the server saw %d:\n%s%s", args, code, test.seen.Load(), out, stderr)
		}
	}
}

// ctrl-C stops a load test at once, and the results so far are printed.
func TestBenchInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if asked.Add(1) == 100 {
			interrupt()
		}
	}))
	defer server.Close()
	var stdout, stderr bytes.Buffer
	code := run(ctx, []string{"bench", server.URL, "--duration", "1h", "--threshold", "allowed>=10"}, &stdout, &stderr)
	if out := stdout.String(); code != term.ExitFine || !strings.Contains(out, "Interrupted: these are the results so far") || !strings.Contains(out, "✓ allowed>=10") {
		t.Errorf("exit %d:\n%s%s", code, out, stderr.String())
	}
}

// Wrong usage is reported before any request is sent.
func TestBenchWrongUse(t *testing.T) {
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer server.Close()
	local, rls := server.URL, "rls://127.0.0.1:1"
	noCA := filepath.Join(t.TempDir(), "ca.pem")
	write(t, noCA, "nothing")
	for _, test := range []struct{ args, want string }{
		{"", "one URL is required"},
		{rls + " a=1 a=2 --descriptor a=0", "add quotes: --descriptor"},
		{"127.0.0.1:8081", "write rls://HOST:PORT"},
		{"ftp://127.0.0.1", "write rls://HOST:PORT"},
		{"http://192.0.2.7/", "add --allow-remote"},
		{"rls://192.0.2.7:8081 --domain d --descriptor a=b", "add --allow-remote"},
		{"redis://192.0.2.7:6380", "add --allow-remote"},
		{"http://:80/", "the URL has no host"},
		{"http://127.0.0.{1..2}/", "must be a single server"},
		{"rls://127.0.0.1 --domain d --descriptor a=b", "write the port too"},
		{"redis://:secret@127.0.0.1:6380", "--password-file"},
		{"redis://127.0.0.1:6380/0", "the URL has more than an address: write redis://127.0.0.1:6380"},
		{rls, "--domain demo --descriptor"},
		{rls + " --domain d --descriptor a", "write key=value"},
		{rls + " --domain d --descriptor a=b --tls-ca x", "does not use TLS"},
		{"rlss://127.0.0.1:1 --domain d --descriptor a=b --tls-ca " + noCA, "must be a PEM file"},
		{rls + " --domain d --descriptor a=b", "is the server running"},
		{local + " --threshold p99", "write a condition such as p99<5ms"},
		{local + " --keys 5", "--keys needs {key} in"},
		{local + " --pipeline 2", "increase --concurrency"},
		{local + " --concurrency 0", "from 1 to 10000"},
		{local + " --concurrency 20000", "from 1 to 10000"},
		{local + " --duration 0s", "such as 10s"},
		{local + " --rate -1", "requests per second"},
		{local + " --distribution normal", "uniform or zipf"},
		{local + " --descriptor a=b", "--domain and --descriptor"},
		{local + " -H x", "write 'Name: value'"},
		{local + " -X A@B", "write a method"},
		{local + " --body @/nowhere/at/all", "no such file"},
		{local + " --html /nowhere/at/all.html", "there is no directory /nowhere/at"},
		{local + "/{key}", "--keys 1000"},
		{"redis://" + strings.TrimPrefix(local, "http://") + " --count 0", "positive numbers"},
	} {
		code, out, stderr := sluiceRun(t, append([]string{"bench"}, strings.Fields(test.args)...)...)
		if code != term.ExitWrong || !strings.Contains(stderr, test.want) || out != "" {
			t.Errorf("bench %s: exit %d, %s%s, want %q", test.args, code, out, stderr, test.want)
		}
	}
	if asked.Load() > 0 {
		t.Errorf("%d requests were sent", asked.Load())
	}
}

// The commands in the help and in the documents are valid: they fail only because no server is running.
func TestBenchCommandsAsShown(t *testing.T) {
	address := tcptest.FreeAddress(t)
	shown := regexp.MustCompile(`(?m)^(?:\$ |    |  )?sluice (bench .*)$`)
	local := regexp.MustCompile(`127\.0\.0\.1:\d+`)
	for source, want := range map[string]int{"../../docs/load-testing.md": 5, "": 5} {
		text := benchExample
		if source != "" {
			text = read(t, source)
		}
		found := shown.FindAllStringSubmatch(strings.ReplaceAll(text, "\\\n", ""), -1)
		if len(found) != want {
			t.Errorf("%s shows %d commands, want %d", source, len(found), want)
		}
		for _, m := range found {
			command, _, _ := strings.Cut(m[1], "   #")
			args := words(t, local.ReplaceAllString(command, address))
			for i, arg := range args {
				if arg == "report.html" {
					args[i] = filepath.Join(t.TempDir(), arg)
				}
			}
			if code, _, stderr := sluiceRun(t, args...); code != term.ExitWrong || !strings.Contains(stderr, "is the server running") {
				t.Errorf("%s: exit %d, %s", command, code, stderr)
			}
		}
	}
}
