package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/internal/testenv/certtest"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
	"github.com/sluiceproject/sluice/internal/testenv/tcptest"
)

// startRESP runs sluice serve with a RESP listener and additional configuration.
func startRESP(t *testing.T, listener, more string) (p *process, port string) {
	t.Helper()
	_, port, _ = net.SplitHostPort(tcptest.FreeAddress(t))
	return startServe(t, fmt.Sprintf(`
listeners:
  grpc: {address: '127.0.0.1:0'}
  http: {address: '127.0.0.1:0'}
  resp: {address: '127.0.0.1:%s'%s}
%s
`, port, listener, more)), port
}

// redisCLI runs redis-cli with the text as standard input.
func redisCLI(t *testing.T, text string, args ...string) string {
	t.Helper()
	path, err := exec.LookPath("redis-cli")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip("redis-cli is not installed: install redis-tools")
	}
	cmd := exec.Command(path, args...)
	cmd.Stdin = strings.NewReader(text)
	out, err := cmd.CombinedOutput()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// redis-cli works as with Redis and redis-cell.
func TestServeRedisCLI(t *testing.T) {
	password := filepath.Join(t.TempDir(), "password")
	write(t, password, "sesame\n")
	p, port := startRESP(t, "", fmt.Sprintf("resp: {password_file: %q}", password))
	const key = "CL.THROTTLE user123 15 30 60"
	for _, tt := range []struct {
		say  string
		args []string
		want string
	}{
		{"PING\n", nil, "NOAUTH Authentication required."},
		{"PING\n", []string{"-a", "no", "--no-auth-warning"}, "AUTH failed: WRONGPASS invalid username-password pair or user is disabled.\nNOAUTH Authentication required."},
		{"AUTH sesame\nPING\n", nil, "OK\nPONG"},
		{"AUTH default sesame\nECHO \"a b\"\n", nil, "OK\na b"},
		{"AUTH no\n", nil, "WRONGPASS invalid username-password pair or user is disabled."},
		{"HELLO 3 AUTH default sesame SETNAME me\n", nil, "server sluice\nversion 7.0.0\nproto 3"},
		{"PING\n", []string{"-3", "--user", "default", "--pass", "sesame", "--no-auth-warning"}, "PONG"},
		{key + "\n", []string{"-a", "sesame", "--no-auth-warning", "--no-raw"}, "1) (integer) 0\n2) (integer) 16\n3) (integer) 15\n4) (integer) -1\n5) (integer) 2"},
		{key + " 15\n", []string{"-3", "-a", "sesame", "--no-auth-warning"}, "0\n16\n0\n-1\n32"},
		{key + " 0\n", []string{"-a", "sesame", "--no-auth-warning"}, "0\n16\n0\n-1\n3"},
		{"cl.throttle user123\nSELECT 0\nget a\n", []string{"-a", "sesame", "--no-auth-warning"}, "ERR wrong number of arguments for 'cl.throttle' command: write CL.THROTTLE key max_burst count period [quantity]\n\nOK\nERR unknown command \"get\""},
	} {
		if got := redisCLI(t, tt.say, append([]string{"-p", port}, tt.args...)...); !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s %s\ngot  %s\nwant %s", strings.Join(tt.args, " "), tt.say, got, tt.want)
		}
	}
	if got := redisCLI(t, "", "-p", port, "-a", "sesame", "--no-auth-warning", "CL.THROTTLE", "by hand", "0", "1", "60"); got != "0\n1\n0\n-1\n60" {
		t.Errorf("got %s", got)
	}

	// Many commands at once, also as inline commands.
	const many = 2000
	for name, line := range map[string]string{
		"lines": "CL.THROTTLE pipe 99999 1 3600\r\n", "arrays": "*5\r\n$11\r\nCL.THROTTLE\r\n$4\r\npipe\r\n$5\r\n99999\r\n$1\r\n1\r\n$4\r\n3600\r\n",
	} {
		text := strings.Repeat(line, many)
		got := redisCLI(t, text, "-p", port, "-a", "sesame", "--no-auth-warning", "--pipe")
		if !strings.Contains(got, fmt.Sprintf("errors: 0, replies: %d", many)) {
			t.Errorf("%s: got %s", name, got)
		}
	}
	if got := redisCLI(t, "CL.THROTTLE pipe 99999 1 3600 0\n", "-p", port, "-a", "sesame", "--no-auth-warning"); !strings.HasPrefix(got, fmt.Sprintf("0\n100000\n%d\n-1\n", 100_000-2*many)) {
		t.Errorf("got %s", got)
	}

	// A changed password applies without a restart, and an invalid file keeps the last password.
	write(t, password, "abracadabra")
	if got := redisCLI(t, "AUTH sesame\nAUTH abracadabra\n", "-p", port); got != "WRONGPASS invalid username-password pair or user is disabled.\n\nOK" {
		t.Errorf("got %s", got)
	}
	write(t, password, "\n")
	if got := redisCLI(t, "AUTH abracadabra\n", "-p", port); got != "OK" {
		t.Errorf("got %s", got)
	}
	p.await(t, "invalid: last valid content stays in use")

	// Password guessing is limited.
	got := redisCLI(t, strings.Repeat("AUTH guess\n", 50), "-p", port)
	if n := strings.Count(got, "WRONGPASS"); n > 20 || !strings.Contains(got, "ERR too many failed attempts") {
		t.Errorf("%d guesses were checked:\n%s", n, got)
	}
}

// The redis-cli commands in docs/resp.md print the output that it shows.
func TestRedisCLIInDocs(t *testing.T) {
	b, err := os.ReadFile("../../docs/resp.md")
	if err != nil {
		t.Fatal(err)
	}
	_, port := startRESP(t, "", "")
	shown := regexp.MustCompile(`(?s)\$ redis-cli -p 6380 ([^\n]*)\n(.*?)\n`+"```").FindAllStringSubmatch(string(b), -1)
	for _, m := range shown {
		if got := redisCLI(t, "", append([]string{"-p", port}, strings.Fields(m[1])...)...); got != m[2] {
			t.Errorf("%s prints\n%s", m[1], got)
		}
	}
	if len(shown) == 0 {
		t.Error("docs/resp.md shows no redis-cli command")
	}
}

// Common Redis clients work without changes, with pipelining, and share the limit.
func TestServeRedisClients(t *testing.T) {
	password := filepath.Join(t.TempDir(), "password")
	write(t, password, "sesame")
	stored := redistest.Start(t)
	for store, cfg := range map[string]string{"memory": "", "redis": fmt.Sprintf("store: {kind: redis, url: %q, timeout: 20s}", stored.URL())} {
		t.Run(store, func(t *testing.T) {
			_, port := startRESP(t, "", fmt.Sprintf("resp: {password_file: %q}\n%s", password, cfg))
			address := "127.0.0.1:" + port
			first := redis.NewClient(&redis.Options{Addr: address, Password: "sesame", ClientName: "first"})
			defer first.Close()
			old := redis.NewClient(&redis.Options{Addr: address, Username: "default", Password: "sesame", Protocol: 2})
			defer old.Close()
			second, err := rueidis.NewClient(rueidis.ClientOption{
				InitAddress: []string{address}, Password: "sesame", ClientName: "second", DisableCache: true, ForceSingleClient: true,
			})
			if err != nil {
				t.Fatal(err)
			}
			defer second.Close()

			const limit, each = 100, 60
			var allowed atomic.Int64
			var all sync.WaitGroup
			note := func(got []int64, err error) {
				if err != nil || len(got) != 5 || got[1] != limit {
					t.Errorf("got %v, %v", got, err)
				} else if got[0] == 0 {
					allowed.Add(1)
				}
			}
			throttle := []any{"CL.THROTTLE", "together", limit - 1, 1, 3600}
			for _, c := range []*redis.Client{first, old} {
				for range 4 {
					all.Go(func() { // sequentially, on pooled connections
						for range each / 4 {
							note(c.Do(t.Context(), throttle...).Int64Slice())
						}
					})
				}
				all.Go(func() { // in one pipeline
					pipe := c.Pipeline()
					for range each {
						pipe.Do(t.Context(), throttle...)
					}
					cmds, err := pipe.Exec(t.Context())
					if err != nil {
						t.Error(err)
					}
					for _, cmd := range cmds {
						note(cmd.(*redis.Cmd).Int64Slice())
					}
				})
			}
			for range each { // pipelined by the client
				all.Go(func() {
					cmd := second.B().Arbitrary("CL.THROTTLE").Keys("together").Args(fmt.Sprint(limit-1), "1", "3600").Build()
					note(second.Do(t.Context(), cmd).AsIntSlice())
				})
			}
			all.Wait()
			if got := allowed.Load(); got != limit {
				t.Errorf("%d were allowed, want %d", got, limit)
			}
			if got, err := first.Ping(t.Context()).Result(); got != "PONG" || err != nil {
				t.Errorf("got %s, %v", got, err)
			}
		})
	}
}

// Clients authenticate with certificates where these are required, and then need no password.
func TestServeRESPWithTLS(t *testing.T) {
	authority := certtest.New(t)
	directory := t.TempDir()
	in := func(name string) string { return filepath.Join(directory, name) }
	server, client := authority.Issue(t, "localhost"), authority.Issue(t, "app")
	for name, b := range map[string][]byte{
		"ca": authority.PEM, "server.crt": server.Cert, "server.key": server.Key, "client.crt": client.Cert, "client.key": client.Key,
	} {
		write(t, in(name), string(b))
	}
	p, port := startRESP(t, fmt.Sprintf(", tls: {cert_file: %q, key_file: %q, client_ca_file: %q}", in("server.crt"), in("server.key"), in("ca")), "")
	tlsArgs := []string{"-p", port, "-h", "localhost", "--tls", "--cacert", in("ca")}
	if got := redisCLI(t, "PING\n", tlsArgs...); strings.Contains(got, "PONG") {
		t.Errorf("without a certificate: %s", got)
	}
	got := redisCLI(t, "CL.THROTTLE k 1 1 60\n", append(tlsArgs, "--cert", in("client.crt"), "--key", in("client.key"))...)
	if got != "0\n2\n1\n-1\n60" {
		t.Errorf("got %s", got)
	}

	// Received commands get their replies during the shutdown, over TLS too.
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority.PEM)
	own, err := tls.X509KeyPair(client.Cert, client.Key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := tls.Dial("tcp", "127.0.0.1:"+port, &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: pool, ServerName: "localhost", Certificates: []tls.Certificate{own},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "ECHO a\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, len("$1\r\na\r\n"))); err != nil { // the connection is accepted, and not in the backlog
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, strings.Repeat("PING\r\n", 1000)); err != nil {
		t.Fatal(err)
	}
	p.signal(t, syscall.SIGTERM)
	answers, err := io.ReadAll(c)
	if n := strings.Count(string(answers), "+PONG\r\n"); n != 1000 || err != nil {
		t.Errorf("%d of 1000 got a reply: %v", n, err)
	}
	<-p.ended
}

// The listener enforces its bounds, and other protocols on its port do no harm.
func TestServeRESPHostile(t *testing.T) {
	p, port := startRESP(t, ", max_connections: 50", "")
	address := "127.0.0.1:" + port
	honest := redis.NewClient(&redis.Options{Addr: address, PoolSize: 1, MinIdleConns: 1})
	defer honest.Close()
	ask := func() error {
		return honest.Do(context.WithoutCancel(t.Context()), "CL.THROTTLE", "k", 999999, 1, 60).Err()
	}
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	v := &victim{process: p}
	before := v.resident(t)
	for range times(200) {
		for _, text := range []string{"*16\r\n$8000\r\n", "", "\x16\x03\x01", strings.Repeat("*", 10_000), "GET / HTTP/1.1\r\nHost: x\r\n\r\n"} {
			c := raw(t, address)
			_, _ = io.WriteString(c, text)
		}
	}
	for range times(1000) {
		if err := ask(); err != nil {
			t.Fatal(err)
		}
	}
	if after := v.resident(t); after > before+50 {
		t.Errorf("the memory of the process grew from %d MiB to %d", before, after)
	}
}

// Requests of Redis clients are counted, and the status shows the address of the listener.
func TestServeRESPMetrics(t *testing.T) {
	p, port := startRESP(t, "", "metrics: {http_listener: true}")
	redisCLI(t, "CL.THROTTLE k 0 1 60\nCL.THROTTLE k 0 1 60\nCL.THROTTLE k 0 1 60\nPING\nGET a\n", "-p", port)
	got := p.metrics(t)
	resp, err := http.Get("http://" + p.admin + "/v1/status")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(b), `"resp":"127.0.0.1:`+port+`"`) {
		t.Errorf("the status is %s, %v", b, err)
	}
	for _, want := range []string{
		`sluice_requests_total{code="allowed",protocol="resp"} 1`, `sluice_requests_total{code="denied",protocol="resp"} 2`,
		`sluice_requests_total{code="ok",protocol="resp"} `, `sluice_requests_total{code="error",protocol="resp"} 1`,
		`sluice_decisions_total{result="denied",rule="resp",source="store"} 2`,
	} {
		if !strings.Contains(got, "\n"+want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
}

// Operators can peek at, reset and block buckets of Redis clients.
func TestServeRESPOperators(t *testing.T) {
	p, port := startRESP(t, "", "")
	throttle := func() string { return redisCLI(t, "", "-p", port, "CL.THROTTLE", "ada", "0", "1", "3600") }
	post := func(path, body string) string {
		resp, err := http.Post("http://"+p.admin+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s %s, %v", path, resp.Status, b, err)
		}
		return string(b)
	}
	first, second := throttle(), throttle()
	post("/v1/reset", `{"rule":"resp","key":{"key":"ada"}}`)
	forgiven := throttle()
	post("/v1/reset", `{"rule":"resp","key":{"key":"ada"}}`)
	post("/v1/block", `{"rule":"resp","key":{"key":"ada"},"duration":"1h"}`)
	blocked := throttle()
	for i, got := range []string{first, second, forgiven, blocked} {
		if want := []string{"0", "1", "0", "1"}[i]; !strings.HasPrefix(got, want+"\n") {
			t.Errorf("reply %d: %q, want %s first", i, got, want)
		}
	}
	if got := post("/v1/peek", `{"rule":"resp","key":{"key":"ada"}}`); !strings.Contains(got, `"blocked_seconds":`) {
		t.Errorf("the admin API responds %s", got)
	}
}

// The RESP listener can be the only listener, over a Unix socket too, and needs no rules.
func TestServeRESPAlone(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s.sock")
	p := startServe(t, fmt.Sprintf("listeners: {grpc: {address: off}, http: {address: off}, resp: {address: 'unix://%s'}}", socket))
	if got := redisCLI(t, "", "-s", socket, "CL.THROTTLE", "k", "1", "1", "60"); got != "0\n2\n1\n-1\n60" {
		t.Errorf("got %s", got)
	}
	p.signal(t, syscall.SIGTERM)
	<-p.ended
	if p.stdout.Len() > 0 {
		t.Errorf("the banner shows commands for listeners that are off:\n%s", &p.stdout)
	}
}

func TestServeRESPFaults(t *testing.T) {
	directory := t.TempDir()
	empty := filepath.Join(directory, "empty")
	write(t, empty, "\n")
	for want, password := range map[string]string{"is empty: write the password into it": empty, "no such file": filepath.Join(directory, "none")} {
		file := filepath.Join(t.TempDir(), "sluice.yaml")
		write(t, file, fmt.Sprintf("listeners: {grpc: {address: off}, http: {address: off}, resp: {address: '127.0.0.1:0'}}\nresp: {password_file: %q}\n", password))
		if code, _, stderr := sluiceRun(t, "serve", "--config", file); code != term.ExitWrong || !strings.Contains(stderr, want) || !strings.Contains(stderr, "resp.password_file") {
			t.Errorf("exit %d, %s", code, stderr)
		}
	}
}
