package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/internal/testenv/certtest"
	"github.com/sluiceproject/sluice/internal/testenv/faultproxy"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
	"github.com/sluiceproject/sluice/internal/testenv/tcptest"
)

// lying starts a server that sends the text to every client.
func lying(t *testing.T, text string) (address string) {
	t.Helper()
	return tcptest.Serve(t, func(c net.Conn) {
		_, _ = io.WriteString(c, text)
		_, _ = io.Copy(io.Discard, c)
	})
}

// endless writes the text repeatedly until a write fails.
func endless(w io.Writer, text string) {
	text = strings.Repeat(text, 1+(64<<10)/len(text))
	for {
		if _, err := io.WriteString(w, text); err != nil {
			return
		}
	}
}

// bounded fails the test if the peak memory of the process exceeds most MiB.
func (p *process) bounded(t *testing.T, most int) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return // /proc exists only on Linux
	}
	_, rest, _ := strings.Cut(string(b), "VmHWM:")
	if kib, err := strconv.Atoi(strings.Fields(rest)[0]); err != nil || kib>>10 > most {
		t.Errorf("the peak memory of the process is %d KiB, want at most %d MiB (%v)", kib, most, err)
	}
}

// request sends a request to a gateway and returns the response's status and header.
func request(t *testing.T, method, address string) (int, http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+"/x", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode, resp.Header
}

// ready returns the response of /readyz.
func (p *process) ready(t *testing.T) (int, string) {
	t.Helper()
	resp, err := http.Get("http://" + p.http + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

// until waits for a condition.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick, late := time.NewTicker(10*time.Millisecond), time.After(time.Minute)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("timeout: waiting until %s", what)
		}
	}
}

// redisLies are replies that would crash the process or exhaust its memory with a less strict client library.
var redisLies = map[string]string{
	"$-9\r\n": "length -9", "*1000000000\r\n": "1000000000 elements", "$9999999999999\r\n": "9999999999999 bytes",
	strings.Repeat("*1\r\n", 100_000): "nested more than 16 deep", "+" + strings.Repeat("x", 1<<20): "line of more than",
	strings.Repeat("|1\r\n+a\r\n+b\r\n", 1000): "which is not one of RESP", strings.Repeat(">2\r\n+invalidate\r\n*0\r\n", 20_000): "pushes between",
}

// Invalid replies of Redis, at the start or later, do not crash the process: the log names the server, and the rules' fail modes
// decide.
func TestServeLyingRedis(t *testing.T) {
	t.Parallel()
	gateway := fmt.Sprintf("{upstreams: {api: {servers: %q}}, routes: [{upstream: api}]}", application(t).URL)
	const rules = "rules: [{name: open, match: {method: GET}, limit: 1000/s, on_failure: open}, {name: closed, match: {method: POST}, limit: 1000/s, on_failure: closed}]"
	decided := func(address string) {
		t.Helper()
		if status, _ := request(t, http.MethodGet, address); status != http.StatusOK {
			t.Errorf("the rule that fails open: status %d", status)
		}
		if status, _ := request(t, http.MethodPost, address); status != http.StatusServiceUnavailable && status != http.StatusTooManyRequests {
			t.Errorf("the rule that fails closed: status %d", status)
		}
	}
	p, address := startGateway(t, gateway, rules, fmt.Sprintf("store: {kind: redis, url: %q}", "redis://"+lying(t, "$-9\r\n")))
	decided(address)
	p.await(t, "reply rejected")

	proxy := faultproxy.Start(t, redistest.Start(t).Addr)
	p, address = startGateway(t, gateway, rules, fmt.Sprintf("store: {kind: redis, url: %q, timeout: 1s}", "redis://"+proxy.Addr))
	for lie, reason := range redisLies {
		until(t, "the store decides", func() bool { status, _ := request(t, http.MethodPost, address); return status == http.StatusOK })
		proxy.Set(faultproxy.Fault{Change: func(*faultproxy.Conn, []byte) []byte { return []byte(lie) }})
		until(t, "the log has the reason", func() bool {
			decided(address)
			return strings.Contains(strings.Join(p.log(), "\n"), reason)
		})
		proxy.Heal()
	}
}

const natsInfo = `INFO {"server_id":"x","version":"2.10.0","proto":1,"max_payload":1048576,"headers":true,"jetstream":true}` + "\r\n"

// The service starts and stops even if the NATS server is silent or sends invalid messages. The log and /readyz name the server.
func TestServeLyingNATS(t *testing.T) {
	t.Parallel()
	gateway := fmt.Sprintf("{upstreams: {api: {servers: %q}}, routes: [{upstream: api}]}", application(t).URL)
	const rules = "rules: [{name: all, limit: 1/h, on_limit: queue}]"
	for name, lie := range map[string]struct{ says, reason string }{
		"100 GB":   {natsInfo + "PONG\r\nMSG x 1 107374182400\r\n", "message of 107374182400 bytes, maximum 67108864"},
		"overflow": {natsInfo + "MSG x 1 18446744073709551616\r\n", "message of 18446744073709551616 bytes"},
		"INFO":     {"INFO {" + strings.Repeat(" ", 1<<20), "line of more than 65536 bytes"},
		"HTTP":     {"HTTP/1.1 400 Bad Request\r\n\r\n", "not an operation of NATS"},
		"silent":   {"", "no reply within"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := lying(t, lie.says)
			p, address := startGateway(t, gateway, rules, fmt.Sprintf("queue: {url: %q}", "nats://"+server))
			if status, _ := request(t, http.MethodPost, address); status != http.StatusOK {
				t.Errorf("status %d for a request within the limit", status)
			}
			status, header := request(t, http.MethodPost, address)
			if status != http.StatusServiceUnavailable || header.Get("Retry-After") == "" {
				t.Errorf("status %d, Retry-After %q, for a request that cannot be queued", status, header.Get("Retry-After"))
			}
			until(t, "/readyz has the reason", func() bool {
				status, text := p.ready(t)
				return status == http.StatusServiceUnavailable && strings.Contains(text, lie.reason)
			})
			began := time.Now()
			p.signal(t, syscall.SIGTERM)
			<-p.ended
			if took := time.Since(began); took > 4*time.Second { // the drain timeout is 2 s
				t.Errorf("the shutdown took %v", took)
			}
		})
	}
}

// The same holds for a NATS server with TLS.
func TestServeLyingNATSWithTLS(t *testing.T) {
	t.Parallel()
	ca, file := certtest.New(t), filepath.Join(t.TempDir(), "ca.pem")
	write(t, file, string(ca.PEM))
	issued := ca.Issue(t, "localhost")
	pair, err := tls.X509KeyPair(issued.Cert, issued.Key)
	if err != nil {
		t.Fatal(err)
	}
	server := tcptest.Serve(t, func(c net.Conn) {
		_, _ = io.WriteString(c, strings.Replace(natsInfo, "{", `{"tls_required":true,`, 1))
		private := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{pair}})
		_, _ = io.WriteString(private, "PONG\r\nMSG x 1 107374182400\r\n")
		_, _ = io.Copy(io.Discard, private)
	})
	gateway := fmt.Sprintf("{upstreams: {api: {servers: %q}}, routes: [{upstream: api}]}", application(t).URL)
	p, address := startGateway(t, gateway, "rules: [{name: all, limit: 1/h, on_limit: queue}]",
		fmt.Sprintf("queue: {url: %q, tls: {ca_file: %q}}", strings.Replace("tls://"+server, "127.0.0.1", "localhost", 1), file))
	request(t, http.MethodPost, address)
	if status, _ := request(t, http.MethodPost, address); status != http.StatusServiceUnavailable {
		t.Errorf("status %d for a request that cannot be queued", status)
	}
	until(t, "/readyz has the reason", func() bool {
		status, text := p.ready(t)
		return status == http.StatusServiceUnavailable && strings.Contains(text, "message of 107374182400 bytes, maximum 67108864")
	})
	p.bounded(t, 256)
}

// With invalid replies of Memcached the rules' fail modes decide, and the log names the server.
func TestServeLyingMemcached(t *testing.T) {
	t.Parallel()
	gateway := fmt.Sprintf("{upstreams: {api: {servers: %q}}, routes: [{upstream: api}]}", application(t).URL)
	for name, lie := range map[string]struct{ says, reason string }{
		"huge":     {"VA 100000000000 k O1 c1\r\n", "a value of 100000000000 bytes"},
		"negative": {"VA -1 k O1 c1\r\n", "VA -1 k"},
		"overflow": {"VA 18446744073709551616 k O1 c1\r\n", "VA 18446744073709551616"},
		"endless":  {"", "xxxx"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := tcptest.Serve(t, func(c net.Conn) {
				if _, err := c.Read(make([]byte, 1)); err != nil {
					return
				}
				if lie.says == "" {
					endless(c, "x")
				}
				_, _ = io.WriteString(c, lie.says)
				_, _ = io.Copy(io.Discard, c)
			})
			p, address := startGateway(t, gateway, "rules: [{name: open, match: {method: GET}, limit: 1000/s, on_failure: open}, {name: closed, match: {method: POST}, limit: 1000/s, on_failure: closed}]",
				fmt.Sprintf("store: {kind: memcached, addresses: %q, timeout: 1s}\nlogging: {level: debug}", server))
			until(t, "the log has the reason", func() bool {
				if status, _ := request(t, http.MethodGet, address); status != http.StatusOK {
					t.Errorf("the rule that fails open: status %d", status)
				}
				if status, _ := request(t, http.MethodPost, address); status != http.StatusServiceUnavailable && status != http.StatusTooManyRequests {
					t.Errorf("the rule that fails closed: status %d", status)
				}
				log := strings.Join(p.log(), "\n")
				return strings.Contains(log, server) && strings.Contains(log, lie.reason)
			})
			p.bounded(t, 256)
		})
	}
}

// A JWKS with an endless body, too deep nesting or endless headers is not used. The log names it, and requests without a token are
// served.
func TestServeLyingKeySet(t *testing.T) {
	t.Parallel()
	gateway := fmt.Sprintf("{upstreams: {api: {servers: %q}}, routes: [{path: /token, upstream: api, authentication: jwt}, {upstream: api}]}", application(t).URL)
	const head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
	for name, lie := range map[string]struct{ says, again, reason string }{
		"endless":         {head + "\r\n{\"keys\": [", "{},", "more than 262144 bytes"},
		"endless chunks":  {head + "Transfer-Encoding: chunked\r\n\r\n", "1\r\n \r\n", "more than 262144 bytes"},
		"deep":            {head + "Connection: close\r\nContent-Length: 200000\r\n\r\n" + strings.Repeat("[", 200_000), "", "not a JWKS"},
		"endless headers": {"HTTP/1.1 200 OK\r\n", "X-Field: value\r\n", "headers exceeded"},
		"endless status":  {"HTTP/1.1 200 ", "x", "headers exceeded"},
		"endless 1xx":     {"", "HTTP/1.1 103 Early Hints\r\n\r\n", "headers exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := tcptest.Serve(t, func(c net.Conn) {
				if _, err := c.Read(make([]byte, 1)); err != nil {
					return
				}
				_, _ = io.WriteString(c, lie.says)
				if lie.again != "" {
					endless(c, lie.again)
				}
				_, _ = io.Copy(io.Discard, c)
			})
			p, address := startGateway(t, gateway, "rules: [{name: all, limit: 1000/s}]", fmt.Sprintf("authentication: {jwt: {algorithms: EdDSA, jwks_url: %q}}", "http://"+server+"/keys"))
			until(t, "the log has the reason", func() bool {
				log := strings.Join(p.log(), "\n")
				return strings.Contains(log, "http://"+server+"/keys") && strings.Contains(log, lie.reason)
			})
			if status, _ := request(t, http.MethodGet, address); status != http.StatusOK {
				t.Errorf("status %d for a request that needs no token", status)
			}
			p.bounded(t, 256)
		})
	}
}

// The service detects that a NATS server stops responding, and that it responds again.
func TestServeSilentNATS(t *testing.T) {
	t.Parallel()
	proxy := faultproxy.Start(t, strings.TrimPrefix(natsServer(t), "nats://"))
	gateway := fmt.Sprintf("{upstreams: {api: {servers: %q}}, routes: [{upstream: api}]}", application(t).URL)
	proxy.Set(faultproxy.Fault{Silent: true})
	p, address := startGateway(t, gateway, "rules: [{name: all, limit: 1/h, on_limit: queue}]", fmt.Sprintf("queue: {url: %q}", "nats://"+proxy.Addr))
	request(t, http.MethodPost, address)
	is := func(want int) func() bool {
		return func() bool {
			status, _ := request(t, http.MethodPost, address)
			readiness, _ := p.ready(t)
			return status == want && (readiness == http.StatusOK) == (want == http.StatusAccepted)
		}
	}
	until(t, "nothing is queued", is(http.StatusServiceUnavailable))
	proxy.Heal()
	until(t, "requests are queued", is(http.StatusAccepted))
	proxy.Set(faultproxy.Fault{Silent: true})
	until(t, "nothing is queued", is(http.StatusServiceUnavailable))
	proxy.Heal()
	until(t, "requests are queued", is(http.StatusAccepted))
	proxy.Set(faultproxy.Fault{Silent: true})
	until(t, "nothing is queued", is(http.StatusServiceUnavailable))
	began := time.Now()
	p.signal(t, syscall.SIGTERM)
	<-p.ended
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("the shutdown took %v", took)
	}
}

// If the queue's directory is lost in any way, no request gets 202 that would be missing after a restart.
func TestServeQueueDirectoryLost(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(given string) error{
		"removed": os.RemoveAll,
		"moved":   func(given string) error { return os.Rename(given, given+".old") },
		"emptied": func(given string) error {
			if err := os.RemoveAll(filepath.Join(given, "sluice")); err != nil {
				return err
			}
			return os.Mkdir(filepath.Join(given, "sluice"), 0o700)
		},
		"replaced": func(given string) error {
			if err := os.Rename(given, given+".old"); err != nil {
				return err
			}
			return os.CopyFS(given, os.DirFS(given+".old"))
		},
		"linked": func(given string) error {
			if err := os.Rename(given, given+".old"); err != nil {
				return err
			}
			if err := os.MkdirAll(given+".new/sluice", 0o700); err != nil {
				return err
			}
			return os.Symlink(given+".new", given)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			given := filepath.Join(memoryDir(t), "queue")
			if err := os.Mkdir(given, 0o777); err != nil {
				t.Fatal(err)
			}
			gateway := fmt.Sprintf("{upstreams: {api: {servers: %q}}, routes: [{upstream: api}]}", application(t).URL)
			p, address := startGateway(t, gateway, "rules: [{name: all, limit: 1/h, on_limit: queue}]", fmt.Sprintf("queue: {directory: %q}", given))
			if info, err := os.Stat(filepath.Join(given, "sluice")); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("%v, %v", info, err)
			}
			request(t, http.MethodPost, address)
			if status, _ := request(t, http.MethodPost, address); status != http.StatusAccepted {
				t.Fatalf("status %d instead of 202", status)
			}
			if err := lose(given); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if status, header := request(t, http.MethodPost, address); status != http.StatusServiceUnavailable || header.Get("Retry-After") == "" {
					t.Errorf("status %d, Retry-After %q, while the directory is %s", status, header.Get("Retry-After"), name)
				}
			}
			if status, text := p.ready(t); status != http.StatusServiceUnavailable || !strings.Contains(text, given) {
				t.Errorf("/readyz: %d %s", status, text)
			}
			if code, out, _ := sluiceRun(t, "status", "--admin-url", "http://"+p.admin); code != term.ExitFindings || !strings.Contains(out, "degraded: ") || !strings.Contains(out, "\nnot ready  queue: ") || !strings.Contains(out, given) {
				t.Errorf("sluice status: exit %d\n%s", code, out)
			}
			if name == "moved" { // move it back
				if err := os.Rename(given+".old", given); err != nil {
					t.Fatal(err)
				}
				until(t, "it heals", func() bool { status, _ := request(t, http.MethodPost, address); return status == http.StatusAccepted })
				if code, out, _ := sluiceRun(t, "status", "--admin-url", "http://"+p.admin); code != term.ExitFine || strings.Contains(out, "not ready") {
					t.Errorf("sluice status: exit %d\n%s", code, out)
				}
				// The first request with a 503 may be in the directory, if the loss was not yet detected: remove it.
				until(t, "only items with a 202 are left", func() bool { return len(queuePage(t, p.process, "limit=100").Items) == 2 })
			}
		})
	}
}

// The error for an unreachable NATS server has its URL without the password.
func TestServeUnreachableNATS(t *testing.T) {
	t.Parallel()
	gateway := fmt.Sprintf("{upstreams: {api: {servers: %q}}, routes: [{upstream: api}]}", application(t).URL)
	p, _ := startGateway(t, gateway, "rules: [{name: all, limit: 1/h, on_limit: queue}]", "queue: {url: 'nats://u:pass-word@127.0.0.1:1,nats://127.0.0.1:2'}")
	if status, text := p.ready(t); status != http.StatusServiceUnavailable || !strings.Contains(text, "nats://127.0.0.1:1,nats://127.0.0.1:2") || strings.Contains(text, "pass-word") {
		t.Errorf("/readyz: %d %s", status, text)
	}
}
