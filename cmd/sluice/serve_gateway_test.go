package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/testenv/forwardauthtest"
	"github.com/sluiceproject/sluice/internal/testenv/tcptest"
)

var gatewayServed = regexp.MustCompile(` gateway=(\S+)`)

// gatewayProcess is a running sluice serve with a gateway.
type gatewayProcess struct {
	*process
	rules string // path of the rule file
}

// startGateway runs sluice serve with a gateway and rules, and returns the gateway's address.
func startGateway(t *testing.T, gateway, rules, more string) (p gatewayProcess, address string) {
	t.Helper()
	return startGatewayOn(t, "{address: '127.0.0.1:0'}", gateway, rules, more)
}

// startGatewayOn is like startGateway with the given listener settings.
func startGatewayOn(t *testing.T, listener, gateway, rules, more string) (p gatewayProcess, address string) {
	t.Helper()
	p = launchGateway(t, listener, gateway, rules, more)
	line := p.await(t, "msg=serving")
	m := served.FindStringSubmatch(line)
	p.http, p.admin = m[2], m[3]
	return p, gatewayServed.FindStringSubmatch(line)[1]
}

// launchGateway is like startGatewayOn, but does not wait until the gateway is ready.
func launchGateway(t *testing.T, listener, gateway, rules, more string) gatewayProcess {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, file, rules)
	if !strings.Contains(listener, "drain:") {
		listener += ", drain: {timeout: 2s}"
	}
	p := launch(t, fmt.Sprintf("listeners: {grpc: {address: off}, http: {address: '127.0.0.1:0'}, gateway: %s}\nrules: {paths: [%q]}\ngateway: %s\n%s",
		listener, file, gateway, more))
	return gatewayProcess{process: p, rules: file}
}

// application is an upstream that responds with a description of the request.
func application(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			echoSocket(w)
			return
		}
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s host=%s for=%s body=%s\n", r.Method, r.RequestURI, r.Host, r.Header.Get("X-Forwarded-For"), b)
	}))
	t.Cleanup(s.Close)
	return s
}

// echoSocket sends every message back.
func echoSocket(w http.ResponseWriter) {
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	_, _ = io.Copy(conn, buf)
}

// curl receives the responses of an API behind the gateway, and a 429.
func TestGatewayCurl(t *testing.T) {
	api := application(t)
	_, address := startGateway(t,
		fmt.Sprintf("{upstreams: {api: {servers: %q}}, routes: [{path: /v1/**, upstream: api, strip_prefix: /v1}]}", api.URL),
		"rules: [{name: posts, match: {method: POST, path: /v1/posts}, per: ip, limit: 2/h}]", "")
	url := "http://" + address
	want := "POST /posts?a=1 host=" + address + " for=127.0.0.1 body=hello\n"
	for range 2 {
		if got := curl(t, "-d", "hello", url+"/v1/posts?a=1"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	got := curl(t, "-i", "-d", "hello", url+"/v1/posts?a=1")
	for _, want := range []string{"HTTP/1.1 429 Too Many Requests", "Retry-After: 1", "application/problem+json", `"violated-policies":["posts"]`, "X-Request-Id: "} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if got := curl(t, "-i", url+"/v2"); !strings.Contains(got, "404 Not Found") || !strings.Contains(got, "application/problem+json") {
		t.Errorf("got %s", got)
	}
}

// A queued request gets 202, is delivered later, and its response can be fetched. Queue items contain no credentials that the rule
// does not list.
func TestGatewayKeeps(t *testing.T) {
	got := make(chan http.Header, 10)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got <- r.Header
		w.Header().Set("X-Answer", "yes")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "%s %s %s %s", r.Method, r.Host, r.RequestURI, b)
	}))
	defer api.Close()
	_, address := startGateway(t,
		fmt.Sprintf("{upstreams: {api: {servers: %q}}, routes: [{path: /v1/**, upstream: api, strip_prefix: /v1}]}", api.URL),
		"rules: [{name: rewards, match: {path: /v1/rewards/*}, per: header:X-Device, limit: {rate: 2/s, burst: 1}, on_limit: queue, queue: {keep_headers: [X-Api-Key]}}]",
		fmt.Sprintf("queue: {directory: %q}", t.TempDir()))
	post := func(device string) *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/v1/rewards/7?a=b", strings.NewReader("hello"))
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{
			"X-Device": device, "Authorization": "Bearer secret", "Cookie": "secret", "X-Api-Key": "kept", "X-Other": "other", "Idempotency-Key": "mine",
		} {
			req.Header.Set(name, value)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	if resp := post("a"); resp.StatusCode != http.StatusCreated {
		t.Fatalf("the first response: %s", resp.Status)
	}
	if h := <-got; h.Get("Authorization") != "Bearer secret" || h.Get("Cookie") != "secret" {
		t.Errorf("the first response has %v", h)
	}
	resp := post("a")
	status := resp.Header.Get("Location")
	b, err := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusAccepted || !strings.HasPrefix(status, "/.sluice/queue/") || resp.Header.Get("Retry-After") == "" ||
		!strings.Contains(string(b), `"state":"queued"`) || err != nil {
		t.Fatalf("the second response: %s %v %s, %v", resp.Status, resp.Header, b, err)
	}
	h := <-got
	for name, want := range map[string]string{
		"Authorization": "", "Cookie": "", "X-Api-Key": "kept", "X-Other": "other", "Idempotency-Key": "mine", "X-Forwarded-For": "127.0.0.1",
		"X-Request-Id": resp.Header.Get("X-Request-Id"),
	} {
		if h.Get(name) != want {
			t.Errorf("%s was delivered as %q, want %q", name, h.Get(name), want)
		}
	}
	for !strings.Contains(curl(t, "http://"+address+status), `"state":"done"`) {
		if t.Context().Err() != nil {
			t.Fatal("the item does not become done")
		}
	}
	if got := curl(t, "http://"+address+status); !strings.Contains(got, `"status":201`) || !strings.Contains(got, "POST "+address+" /rewards/7?a=b hello") {
		t.Errorf("its response is %s", got)
	}
	if got := curl(t, "-o", "/dev/null", "-w", "%{http_code}", "http://"+address+"/.sluice/queue/"+strings.Repeat("0", 32)); got != "404" {
		t.Errorf("another id: %s", got)
	}
}

// The gateway counts requests in metrics and writes them to the access log, which sluice simulate reads.
func TestGatewayObserved(t *testing.T) {
	api := application(t)
	file := filepath.Join(t.TempDir(), "access.log")
	p, address := startGateway(t,
		fmt.Sprintf("{upstreams: {api: {servers: %q}}, routes: [{host: h.example, path: '/{x}', upstream: api}], access_log: {file: %q}}", api.URL, file),
		"rules: [{name: once, match: {path: /once}, limit: 1/h}, {name: slow, match: {path: /slow}, limit: {rate: 2/s, burst: 10, algorithm: leaky_queue}, on_limit: delay}]", "metrics: {http_listener: true}")
	for _, target := range []string{"/once", "/x/../once?secret=1", "/two/segments", "/a%2fb", "/free"} {
		curl(t, "-o", "/dev/null", "--path-as-is", "-A", "agent", "-H", "Host: h.example", "http://"+address+target)
	}
	curl(t, "-A", "agent", "-H", "Host: h.example", "http://"+address+"/slow", "http://"+address+"/slow", "http://"+address+"/slow") // sequentially
	malformed := raw(t, address)
	fmt.Fprint(malformed, "GET /once HTTP/1.1\r\nHost: a b\r\n\r\n") // rejected before any handler
	answer, err := io.ReadAll(malformed)
	if err != nil {
		t.Fatal(err)
	}
	got := p.metrics(t)
	for _, want := range []string{
		`sluice_gateway_requests_total{code="2xx",route="h.example/{x}"} 5`, `sluice_gateway_requests_total{code="4xx",route="h.example/{x}"} 1`,
		`sluice_gateway_requests_total{code="4xx",route="none"} 3`, `sluice_gateway_upstream_first_byte_seconds_count{route="h.example/{x}"} 5`,
		"sluice_gateway_in_flight_requests 0", "sluice_gateway_access_log_dropped_lines_total 0", fmt.Sprintf(`sluice_upstream_server_up{server=%q,upstream="api"} 1`, api.URL),
		fmt.Sprintf(`sluice_upstream_requests_total{server=%q,upstream="api"} 5`, api.URL),
	} {
		if !strings.Contains(got, "\n"+want+"\n") {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
	p.signal(t, syscall.SIGTERM)
	<-p.ended
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(b)) {
		var l struct {
			Method, Path, Route, Decision, Rule, Host, Query, Upstream string
			Status                                                     int
			Client                                                     string `json:"client_ip"`
			Agent                                                      string `json:"user_agent"`
			ID                                                         string `json:"request_id"`
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		if l.Method == "" && (l.ID == "" || !strings.Contains(string(answer), "X-Request-Id: "+l.ID+"\r\n")) {
			t.Errorf("%s does not have the request ID of %s", line, answer)
		}
		lines = append(lines, fmt.Sprintf("%s %s %d %s %s %s %s %s%s %s", l.Method, l.Path, l.Status, l.Decision, l.Rule, l.Client, l.Agent, l.Host, l.Query,
			strings.ReplaceAll(l.Upstream, api.URL, "api")))
	}
	want := `GET /once 200 allowed  127.0.0.1 agent h.example api
GET /once 429 denied once 127.0.0.1 agent h.example |
GET /two/segments 404 rejected  127.0.0.1 agent h.example |
GET /a%2fb 400 rejected  127.0.0.1 agent h.example |
GET /free 200 allowed  127.0.0.1 agent h.example api
GET /slow 200 allowed  127.0.0.1 agent h.example api
GET /slow 200 delayed slow 127.0.0.1 agent h.example api
GET /slow 200 delayed slow 127.0.0.1 agent h.example api
  400 rejected  127.0.0.1   |`
	want = strings.ReplaceAll(want, "|", "") // no upstream
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("the log has\n%s\nwant\n%s", got, want)
	}
}

// gatewayLoad sends requests until stopped, to the first gateway until a response announces its shutdown, then to the second. A
// status other than 200 fails the test.
func gatewayLoad(t *testing.T, first, second string) *askers {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 10}}
	var going atomic.Bool
	return startLoad(t, func(ctx context.Context) error {
		address := first
		if going.Load() {
			address = second
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/x", strings.NewReader("hello"))
		if err != nil {
			return err
		}
		req.GetBody = nil // because the client would otherwise resend the request
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.Close {
			going.Store(true)
		}
		if b, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(b), "body=hello") {
			return fmt.Errorf("%s %s, %w", resp.Status, b, err)
		}
		return nil
	})
}

// A graceful shutdown under load fails no request of clients that switch when a response announces it, and WebSockets stay open until
// their clients close them.
func TestGatewayDrain(t *testing.T) {
	api := application(t)
	section := fmt.Sprintf("{upstreams: {api: {servers: %q}}, routes: [{upstream: api}]}", api.URL)
	// Long enough for a busy machine, because this test checks that no request is aborted.
	first, address := startGatewayOn(t, "{address: '127.0.0.1:0'}, drain: {timeout: 1m}", section, "rules: [{name: all, limit: 1000000/s}]", "")
	_, other := startGateway(t, section, "rules: [{name: all, limit: 1000000/s}]", "")
	socket, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	said := bufio.NewReader(socket)
	_, _ = io.WriteString(socket, "GET /socket HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	if resp, err := http.ReadResponse(said, nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(resp, err)
	}
	l := gatewayLoad(t, address, other)
	l.more(t, 200)
	first.signal(t, syscall.SIGTERM)
	for closed := false; !closed; { // the listener
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		closed = errors.Is(err, syscall.ECONNREFUSED)
	}
	l.more(t, 2000)
	_, _ = io.WriteString(socket, "hello\n")
	if got, err := said.ReadString('\n'); got != "hello\n" || err != nil {
		t.Errorf("the WebSocket sent %q, %v", got, err)
	}
	socket.Close()
	<-first.ended
	l.more(t, 100)
	l.end()
}

// An open WebSocket is closed when the drain timeout expires.
func TestGatewayDrainIsBounded(t *testing.T) {
	api := application(t)
	p, address := startGateway(t, fmt.Sprintf("{upstreams: {api: {servers: %q}}, routes: [{upstream: api}]}", api.URL), "rules: []", "")
	socket, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	_, _ = io.WriteString(socket, "GET /socket HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	if resp, err := http.ReadResponse(bufio.NewReader(socket), nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(resp, err)
	}
	p.signal(t, syscall.SIGTERM)
	if _, err := io.Copy(io.Discard, socket); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Error(err)
	}
	<-p.ended
}

// Rules change under load without a failed request.
func TestGatewayReload(t *testing.T) {
	api := application(t)
	p, address := startGateway(t, fmt.Sprintf("{upstreams: {api: {servers: %q}}, routes: [{upstream: api}]}", api.URL),
		"rules: [{name: all, limit: 1000000/s}]", "")
	l := gatewayLoad(t, address, address)
	for i := range 5 {
		l.more(t, 50)
		write(t, p.rules, fmt.Sprintf("rules: [{name: all, limit: 1000000/s}, {name: denied-%d, match: {path: '/denied/%[1]d'}, limit: {rate: 0/h, algorithm: fixed_window}}]", i))
		p.signal(t, syscall.SIGHUP)
		p.await(t, "rules reloaded")
		for j := range i + 1 {
			want := map[bool]string{true: "429", false: "200"}[i == j]
			if got := curl(t, "-o", "/dev/null", "-w", "%{http_code}", fmt.Sprintf("http://%s/denied/%d", address, j)); got != want {
				t.Errorf("after change %d, /denied/%d is %s", i, j, got)
			}
		}
	}
	l.more(t, 50)
	l.end()
}

// nginx works as an upstream: pages, ranges, and a path spelling that nginx would normalize differently.
func TestGatewayBeforeNginx(t *testing.T) {
	forwardauthtest.Need(t, "nginx")
	directory, listens := t.TempDir(), tcptest.FreeAddress(t)
	write(t, filepath.Join(directory, "page.txt"), "a page of nginx")
	write(t, filepath.Join(directory, "nginx.conf"), fmt.Sprintf(`
worker_processes 1; pid nginx.pid; daemon off;
events {}
http {
	access_log off; client_body_temp_path .; proxy_temp_path .; fastcgi_temp_path .; uwsgi_temp_path .; scgi_temp_path .;
	server {
		listen %s;
		location / { root %s; }
		location = /told { return 200 "$request_uri $host $http_x_forwarded_for $http_x_user"; }
	}
}`, listens, directory))
	forwardauthtest.Start(t, listens, exec.Command("nginx", "-e", "stderr", "-p", directory, "-c", "nginx.conf", "-g", "master_process off;"))
	_, address := startGateway(t, fmt.Sprintf("{upstreams: {web: {servers: 'http://%s', health_check: {path: /page.txt}}}, routes: [{upstream: web}]}", listens),
		"rules: [{name: page, match: {path: /page.txt}, limit: 4/h}]", "")
	url := "http://" + address
	for want, args := range map[string][]string{
		"a page of nginx":                  {url + "/page.txt"},
		"page":                             {"-r", "2-5", url + "/page.txt"},
		"200 15":                           {"-I", "-o", "/dev/null", "-w", "%{http_code} %header{content-length}", url + "/x//../page.txt", "--path-as-is"},
		"404":                              {"-o", "/dev/null", "-w", "%{http_code}", url + "/none"},
		"/told?a=%2f 127.0.0.1 127.0.0.1 ": {"-H", "X_User: ada", "-H", "X-Forwarded-For: 192.0.2.1", "--path-as-is", url + "/./told?a=%2f"},
		"400":                              {"-o", "/dev/null", "-w", "%{http_code}", "--path-as-is", url + "/x/..%2fpage.txt"},
	} {
		if got := curl(t, args...); got != want {
			t.Errorf("curl %q: %q, want %q", args, got, want)
		}
	}
	curl(t, "-o", "/dev/null", url+"/page.txt")
	for _, spelling := range []string{"/page.txt", "/page.tx%74", "//page.txt", "/x/../page.txt"} {
		if got := curl(t, "-o", "/dev/null", "-w", "%{http_code}", "--path-as-is", url+spelling); got != "429" {
			t.Errorf("%s: %s", spelling, got)
		}
	}
}

// A metric shows the age of the oldest delayed request.
func TestGatewayOldestDelayed(t *testing.T) {
	api := application(t)
	p, address := startGateway(t, fmt.Sprintf("{upstreams: {api: {servers: %q}}, routes: [{upstream: api}]}", api.URL),
		"rules: [{name: slow, limit: {rate: 1/h, burst: 30, algorithm: leaky_queue}, on_limit: delay, max_delay: 24h}]", "metrics: {http_listener: true}")
	age := regexp.MustCompile(`(?m)^sluice_delay_oldest_request_age_seconds (\S+)$`)
	oldest := func() float64 {
		found := age.FindStringSubmatch(p.metrics(t))
		if found == nil {
			t.Fatal("there is no sluice_delay_oldest_request_age_seconds")
		}
		seconds, err := strconv.ParseFloat(found[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		return seconds
	}
	curl(t, "http://"+address+"/") // is not delayed
	if got := oldest(); got != 0 {
		t.Errorf("no request is delayed, but the age of the oldest is %v s", got)
	}
	ctx, leave := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/", nil)
		if err != nil {
			t.Error(err)
			return
		}
		if res, err := http.DefaultClient.Do(req); !errors.Is(err, context.Canceled) {
			t.Errorf("a request with a delay of an hour: %v, %v", res, err)
		}
	})
	for oldest() == 0 {
	}
	if before := oldest(); before >= oldest() {
		t.Errorf("the age of the oldest stays at %v s", before)
	}
	leave()
	group.Wait()
	for oldest() != 0 {
	}
}
