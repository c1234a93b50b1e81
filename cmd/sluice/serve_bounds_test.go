package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/authn"
	"github.com/sluiceproject/sluice/cmd/internal/testenv/rlstest"
	"github.com/sluiceproject/sluice/internal/testenv/tcptest"
)

// bounded is a running service with small bounds, and helpers that send requests to its listeners.
type bounded struct {
	*process
	gateway, resp string
}

func startBounded(t *testing.T) *bounded {
	t.Helper()
	d := t.TempDir()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		n, _ := strconv.Atoi(r.URL.Query().Get("n"))
		switch r.URL.Path {
		case "/head":
			for i := range n {
				w.Header().Set(fmt.Sprintf("X-%d", i), strings.Repeat("x", 1000))
			}
		case "/usage":
			const begin, end = `{"usage":1,"text":"`, `"}`
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, begin+strings.Repeat("x", n-len(begin)-len(end))+end)
		case "/wait":
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	}))
	t.Cleanup(api.Close) // after the service
	_, hash := authn.NewKey()
	for name, text := range map[string]string{
		"keys.yaml": "keys:\n- {user: ada, hash: '" + hash + "'}\n", "secret": strings.Repeat("s", 32), "token": strings.Repeat("t", 32), "password": "right\n",
		"rules.yaml": `
client_ip: {trusted_proxies: [127.0.0.1]}
rules:
  - {name: attribute, match: {path: /attribute}, per: header:X-Attribute, limit: 1000000/h}
  - {name: later, match: {path: /later}, per: header:X-User, limit: 1/h, on_limit: queue}
  - {name: usage, match: {path: /usage}, limit: 1000000/h, actual_cost: {json: usage}}
  - {name: user, match: {path: /reserve}, per: header:X-User, limit: 1000000/h}
`,
		"envoy.yaml": "domain: d\ndescriptors:\n- {key: k, rate_limit: {unit: year, requests_per_unit: 1000000}}\n",
	} {
		write(t, filepath.Join(d, name), text)
	}
	b := &bounded{resp: tcptest.FreeAddress(t)}
	b.process = launch(t, strings.NewReplacer("DIR", d, "API", api.URL, "RESP", b.resp).Replace(`
listeners:
  drain: {timeout: 2s}
  admin: {address: '127.0.0.1:0'}
  grpc: {address: '127.0.0.1:0', max_connections: 10, max_connections_per_address: 10}
  http: {address: '127.0.0.1:0'}
  resp: {address: 'RESP', max_connections_per_address: 10}
  gateway: {address: '127.0.0.1:0'}
rules: {paths: [DIR/rules.yaml, DIR/envoy.yaml]}
metrics: {http_listener: true}
resp: {password_file: DIR/password}
'admin': {token_file: DIR/token}
authentication:
  api_keys: {files: DIR/keys.yaml}
  jwt: {algorithms: [HS256], secret_file: DIR/secret}
  failed_attempts: 3/h
queue: {directory: DIR/queue, max_item_size: 16KiB, max_items: 3, max_items_per_key: 2}
gateway:
  max_requests: 4
  max_requests_per_address: 2
  upstreams: {api: {servers: API}}
  routes:
    - {path: /body, upstream: api, max_body_size: 1KiB}
    - {path: /key, upstream: api, authentication: [api_keys]}
    - {path: /jwt, upstream: api, authentication: [jwt]}
    - {path: /**, upstream: api}
`))
	line := b.await(t, "msg=serving")
	m := served.FindStringSubmatch(line)
	b.grpc, b.http, b.admin = m[1], m[2], m[3]
	b.gateway = gatewayServed.FindStringSubmatch(line)[1]
	return b
}

var boundMetric = regexp.MustCompile(`(?m)^sluice_bound_reached_total\{bound="([^"]*)"\} (\S+)$`)

// counts returns the number of times that each bound was reached.
func (b *bounded) counts(t *testing.T) map[string]int {
	t.Helper()
	all := map[string]int{}
	for _, m := range boundMetric.FindAllStringSubmatch(fetch(t, "http://"+b.http+"/metrics"), -1) {
		all[m[1]], _ = strconv.Atoi(m[2])
	}
	return all
}

// dial connects from a local address.
func (b *bounded) dial(t *testing.T, from, to string) net.Conn {
	t.Helper()
	c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).Dial("tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

// say sends an HTTP request and returns the status of the response.
func (b *bounded) say(t *testing.T, from, to, text string) string {
	t.Helper()
	c := b.dial(t, from, to)
	go func() { _, _ = io.WriteString(c, text) }() // the server may not read all of it
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err.Error()
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	c.Close()
	return strconv.Itoa(resp.StatusCode)
}

// get sends a request to the gateway.
func (b *bounded) get(t *testing.T, from, target string, fields ...string) string {
	t.Helper()
	return b.say(t, from, b.gateway, "GET "+target+" HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"+strings.Join(append(fields, "\r\n"), "\r\n"))
}

func (b *bounded) post(t *testing.T, from, to, target, body string, fields ...string) string {
	t.Helper()
	fields = append(fields, "Content-Type: application/json", fmt.Sprintf("Content-Length: %d", len(body)), "", body)
	return b.say(t, from, to, "POST "+target+" HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"+strings.Join(fields, "\r\n"))
}

// redis sends commands on one connection and returns the last line of the replies.
func (b *bounded) redis(t *testing.T, commands ...string) string {
	t.Helper()
	c := b.dial(t, "127.0.0.2", b.resp)
	defer c.Close()
	in := bufio.NewReader(c)
	line := ""
	for _, command := range append([]string{"AUTH right"}, commands...) {
		if _, err := io.WriteString(c, command+"\r\n"); err != nil {
			return err.Error()
		}
		var err error
		if line, err = in.ReadString('\n'); err != nil {
			return err.Error()
		}
		if strings.HasPrefix(line, "*5") {
			for range 5 {
				_, _ = in.ReadString('\n')
			}
		}
	}
	return strings.TrimSpace(line)
}

// Every bound with a counter in the table is counted once when it is exceeded, and not when it is just reached. No other counter
// changes.
func TestServeBounds(t *testing.T) {
	b := startBounded(t)
	x := func(n int) string { return strings.Repeat("x", n) }
	list := func(n int, item, separator string) string {
		return strings.TrimSuffix(strings.Repeat(item+separator, n), separator)
	}
	check := func(t *testing.T, body string) string { return b.post(t, "127.0.0.1", b.http, "/v1/check", body) }
	descriptors := func(n, entries, size int) string {
		entry := fmt.Sprintf(`{"key":"k","value":"%s"}`, x(size))
		return fmt.Sprintf(`{"domain":"d","descriptors":[%s]}`, list(n, "["+list(entries, entry, ",")+"]", ","))
	}
	rls := func(t *testing.T, n, entries, size int) string {
		return rlstest.Answer(t.Context(), b.client(t), "d", list(n, list(entries, "k="+x(size), ","), " | "))
	}
	pairs := func(n int, name string) string {
		headers := map[string]string{}
		for i := range n {
			headers[fmt.Sprint("x-", i)] = "v"
		}
		headers[name] = "v"
		text, _ := json.Marshal(map[string]any{"attributes": map[string]any{"method": "GET", "path": "/", "headers": headers}})
		return string(text)
	}
	head := func(t *testing.T, n int) string {
		begin, end := "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nX: ", "\r\n\r\n"
		return b.say(t, "127.0.0.2", b.gateway, begin+x(n-len(begin)-len(end))+end)
	}
	held := func(t *testing.T, last string, of ...string) string { // a request while requests of the other addresses are in flight
		for _, from := range of {
			c := b.dial(t, from, b.gateway)
			_, _ = io.WriteString(c, "GET /wait HTTP/1.1\r\nHost: h\r\n\r\n")
			_, _ = bufio.NewReader(c).ReadString('\n')
		}
		return b.get(t, last, "/")
	}
	guesses := func(t *testing.T, n int, guess func() string) (last string) {
		for range n {
			last = guess()
		}
		return last
	}
	idle := func(t *testing.T, to, hello string, n int) string { // opens n connections from one address and returns the state of the last
		var err error
		for range n {
			c := b.dial(t, "127.0.0.20", to)
			_, _ = io.WriteString(c, hello)
			_, err = c.Read(make([]byte, 1))
		}
		if err != nil {
			return "closed"
		}
		return "open"
	}
	passwords := func(t *testing.T, from string, n int) (last string) { // all at once, because one per second is allowed
		c := b.dial(t, from, b.resp)
		defer c.Close()
		_, _ = io.WriteString(c, strings.Repeat("AUTH wrong\r\n", n))
		in := bufio.NewReader(c)
		for range n {
			last, _ = in.ReadString('\n')
		}
		return last
	}
	limits := func(from, to int) []string {
		all := make([]string, 0, to-from)
		for i := from; i < to; i++ {
			all = append(all, fmt.Sprintf("CL.THROTTLE k 1 %d 60", i+1))
		}
		return all
	}
	watch := func(t *testing.T, n int) (last string) {
		for range n {
			c := b.dial(t, "127.0.0.1", b.admin)
			_, _ = io.WriteString(c, "GET /v1/watch HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer "+strings.Repeat("t", 32)+"\r\n\r\n")
			last, _ = bufio.NewReader(c).ReadString('\n')
		}
		return strings.TrimSpace(strings.TrimPrefix(last, "HTTP/1.1 "))
	}
	const preface = http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00" // and an empty SETTINGS frame
	later := func(t *testing.T, user string, size int) string {
		return b.post(t, "127.0.0.1", b.gateway, "/later", x(size), "X-User: "+user)
	}
	before := b.counts(t)
	for _, row := range []struct {
		bound, name        string
		at, beyond         func(t *testing.T) string
		wantAt, wantBeyond string
	}{
		// This case is first, because it needs a listener without other connections.
		{
			"connections", "", func(t *testing.T) string { return idle(t, b.grpc, preface, 10) },
			func(t *testing.T) string {
				c := b.dial(t, "127.0.0.21", b.grpc)
				_, err := c.Read(make([]byte, 1))
				return fmt.Sprint(err)
			}, "open", "EOF",
		},
		{
			"connections_per_address", "", func(t *testing.T) string { return idle(t, b.resp, "PING\r\n", 10) },
			func(t *testing.T) string { return idle(t, b.resp, "PING\r\n", 1) }, "open", "closed",
		},
		{
			"failed_attempts", "RESP", func(t *testing.T) string { return passwords(t, "127.0.0.22", 10) },
			func(t *testing.T) string { return passwords(t, "127.0.0.23", 11) }, "-WRONGPASS", "-ERR",
		},
		{
			"resp_limits", "", func(t *testing.T) string { return b.redis(t, limits(0, 4096)...) },
			func(t *testing.T) string { return b.redis(t, limits(4096, 4097)...) }, "*5", "*5",
		},
		{
			"admin_watchers", "", func(t *testing.T) string { return watch(t, 16) },
			func(t *testing.T) string { return watch(t, 1) }, "200", "503",
		},
		{
			"body_size", "length", func(t *testing.T) string { return b.post(t, "127.0.0.1", b.gateway, "/body", x(1<<10)) },
			func(t *testing.T) string { return b.post(t, "127.0.0.1", b.gateway, "/body", x(1<<10+1)) }, "200", "413",
		},
		{"body_size", "chunks", func(t *testing.T) string {
			return b.say(t, "127.0.0.1", b.gateway, "POST /body HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n400\r\n"+x(1<<10)+"\r\n0\r\n\r\n")
		}, func(t *testing.T) string {
			return b.say(t, "127.0.0.1", b.gateway, "POST /body HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n401\r\n"+x(1<<10+1)+"\r\n0\r\n\r\n")
		}, "200", "413"},
		{"request_headers", "", func(t *testing.T) string { return head(t, 64<<10) }, func(t *testing.T) string { return head(t, 72<<10+1) }, "200", "431"},
		{
			"request_path", "bytes", func(t *testing.T) string { return b.get(t, "127.0.0.1", "/"+x(8<<10-1)) },
			func(t *testing.T) string { return b.get(t, "127.0.0.1", "/"+x(8<<10)) }, "200", "400",
		},
		{
			"request_path", "segments", func(t *testing.T) string { return b.get(t, "127.0.0.1", strings.Repeat("/a", 256)) },
			func(t *testing.T) string { return b.get(t, "127.0.0.1", strings.Repeat("/a", 257)) }, "200", "400",
		},
		{
			"query_parameters", "", func(t *testing.T) string { return b.get(t, "127.0.0.1", "/?"+list(1000, "a=b", "&")) },
			func(t *testing.T) string { return b.get(t, "127.0.0.1", "/?"+list(1001, "a=b", "&")) }, "200", "400",
		},
		{
			"attribute_size", "", func(t *testing.T) string { return b.get(t, "127.0.0.1", "/attribute", "X-Attribute: "+x(8<<10)) },
			func(t *testing.T) string { return b.get(t, "127.0.0.1", "/attribute", "X-Attribute: "+x(8<<10+1)) }, "200", "431",
		},
		{
			"attribute_size", "check", func(t *testing.T) string {
				return check(t, `{"attributes":{"method":"GET","path":"/","headers":{"a":"`+x(8<<10)+`"}}}`)
			},
			func(t *testing.T) string {
				return check(t, `{"attributes":{"method":"GET","path":"/","headers":{"a":"`+x(8<<10+1)+`"}}}`)
			}, "200", "400",
		},
		{
			"forwarded_entries", "", func(t *testing.T) string {
				return b.get(t, "127.0.0.1", "/attribute", "X-Attribute: 1", "X-Forwarded-For: "+list(64, "127.0.0.1", ","))
			},
			func(t *testing.T) string {
				return b.get(t, "127.0.0.1", "/attribute", "X-Attribute: 1", "X-Forwarded-For: "+list(65, "127.0.0.1", ","))
			}, "200", "200",
		},
		{
			"token_size", "", func(t *testing.T) string { return b.get(t, "127.0.0.10", "/jwt", "Authorization: Bearer "+x(8<<10)) },
			func(t *testing.T) string { return b.get(t, "127.0.0.10", "/jwt", "Authorization: Bearer "+x(8<<10+1)) }, "401", "401",
		},
		{
			"api_key_size", "", func(t *testing.T) string { return b.get(t, "127.0.0.11", "/key", "X-Api-Key: "+x(1<<10)) },
			func(t *testing.T) string { return b.get(t, "127.0.0.11", "/key", "X-Api-Key: "+x(1<<10+1)) }, "401", "401",
		},
		{
			"failed_attempts", "gateway", func(t *testing.T) string {
				return guesses(t, 3, func() string { return b.get(t, "127.0.0.12", "/key", "X-Api-Key: slk_guess") })
			},
			func(t *testing.T) string { return b.get(t, "127.0.0.12", "/key", "X-Api-Key: slk_guess") }, "401", "429",
		},
		{"failed_attempts", "admin", func(t *testing.T) string {
			return guesses(t, 10, func() string {
				return b.say(t, "127.0.0.12", b.admin, "GET /v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer x\r\n\r\n")
			})
		}, func(t *testing.T) string {
			return b.say(t, "127.0.0.12", b.admin, "GET /v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer x\r\n\r\n")
		}, "401", "429"},
		{"rls_descriptors", "check", func(t *testing.T) string { return check(t, descriptors(1000, 1, 1)) }, func(t *testing.T) string { return check(t, descriptors(1001, 1, 1)) }, "200", "400"},
		{"rls_entries", "check", func(t *testing.T) string { return check(t, descriptors(1, 101, 1)) }, func(t *testing.T) string { return check(t, descriptors(1, 102, 1)) }, "200", "200"},
		{"rls_text", "check", func(t *testing.T) string { return check(t, descriptors(1, 1, 1024)) }, func(t *testing.T) string { return check(t, descriptors(1, 1, 1025)) }, "200", "200"},
		{"rls_descriptors", "gRPC", func(t *testing.T) string { return rls(t, 1000, 1, 1) }, func(t *testing.T) string { return rls(t, 1001, 1, 1) }, "OK:", "rpc error: code = InvalidArgument"},
		{"rls_entries", "gRPC", func(t *testing.T) string { return rls(t, 1, 101, 1) }, func(t *testing.T) string { return rls(t, 1, 102, 1) }, "OK:", "OK:"},
		{"rls_text", "gRPC", func(t *testing.T) string { return rls(t, 1, 1, 1024) }, func(t *testing.T) string { return rls(t, 1, 1, 1025) }, "OK:", "OK:"},
		{"rls_message_size", "", func(t *testing.T) string { return rls(t, 1000, 2, 510) }, func(t *testing.T) string { return rls(t, 1000, 2, 530) }, "OK:", "rpc error: code = ResourceExhausted"},
		{"resp_command", "arguments", func(t *testing.T) string { return b.redis(t, list(16, "a", " ")) }, func(t *testing.T) string { return b.redis(t, list(17, "a", " ")) }, "-ERR", "-ERR"},
		{"resp_key", "", func(t *testing.T) string { return b.redis(t, "CL.THROTTLE "+x(1024)+" 1 1 60") }, func(t *testing.T) string { return b.redis(t, "CL.THROTTLE "+x(1025)+" 1 1 1") }, "*5", "-ERR"},
		{
			"check_body", "", func(t *testing.T) string {
				return check(t, fmt.Sprintf("%-65536s", `{"attributes":{"method":"GET","path":"/"}}`))
			},
			func(t *testing.T) string {
				return check(t, fmt.Sprintf("%-65537s", `{"attributes":{"method":"GET","path":"/"}}`))
			}, "200", "413",
		},
		{
			"check_list", "", func(t *testing.T) string {
				return check(t, `{"checks":[`+list(100, `{"attributes":{"method":"GET","path":"/"}}`, ",")+`]}`)
			},
			func(t *testing.T) string {
				return check(t, `{"checks":[`+list(101, `{"attributes":{"method":"GET","path":"/"}}`, ",")+`]}`)
			}, "200", "400",
		},
		{"check_attributes", "count", func(t *testing.T) string { return check(t, pairs(255, "y")) }, func(t *testing.T) string { return check(t, pairs(256, "y")) }, "200", "400"},
		{"check_attributes", "name", func(t *testing.T) string { return check(t, pairs(1, x(1024))) }, func(t *testing.T) string { return check(t, pairs(1, x(1025))) }, "200", "400"},
		{"reservation_size", "settle", func(t *testing.T) string {
			return b.post(t, "127.0.0.1", b.http, "/v1/settle", `{"reservation":"`+x(43691)+`","actual_cost":1}`)
		}, func(t *testing.T) string {
			return b.post(t, "127.0.0.1", b.http, "/v1/settle", `{"reservation":"`+x(43692)+`","actual_cost":1}`)
		}, "400", "400"},
		{"settled_body", "", func(t *testing.T) string { return b.get(t, "127.0.0.1", "/usage?n=1048576") }, func(t *testing.T) string { return b.get(t, "127.0.0.1", "/usage?n=1048577") }, "200", "200"},
		{"upstream_headers", "", func(t *testing.T) string { return b.get(t, "127.0.0.1", "/head?n=250") }, func(t *testing.T) string { return b.get(t, "127.0.0.1", "/head?n=270") }, "200", "502"},
		{"queue_item_size", "", func(t *testing.T) string { return guesses(t, 2, func() string { return later(t, "a", 15<<10) }) }, func(t *testing.T) string { return later(t, "a", 17<<10) }, "202", "413"},
		{"queue_items_per_key", "", func(t *testing.T) string { return later(t, "a", 1) }, func(t *testing.T) string { return later(t, "a", 1) }, "202", "429"},
		{"queue_items", "", func(t *testing.T) string { return guesses(t, 2, func() string { return later(t, "b", 1) }) }, func(t *testing.T) string { return later(t, "b", 1) }, "202", "503"},
		{
			"admin_body", "", func(t *testing.T) string {
				return b.post(t, "127.0.0.1", b.admin, "/v1/explain", x(64<<10), "Authorization: Bearer "+strings.Repeat("t", 32))
			},
			func(t *testing.T) string {
				return b.post(t, "127.0.0.1", b.admin, "/v1/explain", x(64<<10+1), "Authorization: Bearer "+strings.Repeat("t", 32))
			}, "400", "413",
		},
		{
			"requests_per_address", "", func(t *testing.T) string { return held(t, "127.0.0.13", "127.0.0.13") },
			func(t *testing.T) string { return held(t, "127.0.0.13", "127.0.0.13") }, "200", "429",
		},
		{
			"requests", "", func(t *testing.T) string { return held(t, "127.0.0.16", "127.0.0.14", "127.0.0.14", "127.0.0.15") },
			func(t *testing.T) string { return held(t, "127.0.0.16", "127.0.0.15") }, "200", "503",
		},
	} {
		t.Run(row.bound+" "+row.name, func(t *testing.T) {
			if got := row.at(t); got != row.wantAt && !strings.HasPrefix(got, row.wantAt+" ") {
				t.Errorf("at the bound: %s, want %s", got, row.wantAt)
			}
			at := b.counts(t)
			if got := row.beyond(t); got != row.wantBeyond && !strings.HasPrefix(got, row.wantBeyond+" ") {
				t.Errorf("beyond the bound: %s, want %s", got, row.wantBeyond)
			}
			after := b.counts(t)
			if _, ok := after[row.bound]; !ok {
				t.Error("the bound is not counted")
			}
			for bound, n := range after {
				want := before[bound]
				if bound == row.bound {
					want++
				}
				if n != want || at[bound] != before[bound] {
					t.Errorf("%s: counter %d before, %d at the bound of %s, %d beyond it", bound, before[bound], at[bound], row.bound, n)
				}
			}
			before = after
		})
	}
}
