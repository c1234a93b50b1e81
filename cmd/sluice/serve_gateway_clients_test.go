package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/net/websocket"

	"github.com/sluiceproject/sluice/internal/testenv/certtest"
	"github.com/sluiceproject/sluice/internal/testenv/tcptest"
)

// front is a gateway with an application and a gRPC service as upstreams, which clients reach with and without TLS.
type front struct {
	plain, tls string // addresses; the plain one supports HTTP/2 with prior knowledge too
	ca         string // file
	process    gatewayProcess
	app        *pages
}

const frontRules = `
rules:
  - {name: posts, match: {method: POST, path: /posts}, per: header:X-Api-Key, limit: 2/h}
  - {name: quota, match: {path: /quota}, per: query:who, limit: 3/h}
  - {name: sockets, match: {path: /socket/counted}, per: header:X-Api-Key, limit: {concurrent: 2}}
  - {name: calls, match: {path: /test.Echo/Limited}, per: header:X-Api-Key, limit: 1/h}
`

func newFront(t *testing.T) *front {
	t.Helper()
	directory := t.TempDir()
	authority := certtest.New(t)
	pair := authority.Issue(t, "localhost")
	f := &front{ca: filepath.Join(directory, "ca"), app: newPages(t)}
	for name, b := range map[string][]byte{"ca": authority.PEM, "crt": pair.Cert, "key": pair.Key} {
		write(t, filepath.Join(directory, name), string(b))
	}
	section := fmt.Sprintf(`
  upstreams: {app: {servers: %q}, calls: {servers: 'h2c://%s'}, nobody: {servers: 'h2c://%s'}}
  routes: [{upstream: app}, {path: /test.Echo/**, upstream: calls, max_body_size: off}, {path: /grpc.health.v1.Health/**, upstream: calls}, {path: /test.Nobody/**, upstream: nobody}]`,
		f.app.URL, echoServer(t), tcptest.FreeAddress(t))
	f.process, f.plain = startGateway(t, section, frontRules, "")
	_, f.tls = startGatewayOn(t, fmt.Sprintf("{address: '127.0.0.1:0', tls: {cert_file: %q, key_file: %q}}", filepath.Join(directory, "crt"), filepath.Join(directory, "key")),
		section, frontRules, "")
	f.tls = strings.Replace(f.tls, "127.0.0.1", "localhost", 1)
	return f
}

// pages is an upstream with a handler for each kind of client.
type pages struct {
	*httptest.Server
	next   chan string   // the next event of /events
	left   chan struct{} // a client has closed /events
	closed chan struct{} // a WebSocket was closed
}

func newPages(t *testing.T) *pages {
	t.Helper()
	p := &pages{next: make(chan string), left: make(chan struct{}, 10), closed: make(chan struct{}, 100)}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		w.Header().Set("X-App", "yes")
		fmt.Fprintf(w, "%s %s for=%s proto=%s length=%d %v got=%d\n", r.Method, r.RequestURI, r.Header.Get("X-Forwarded-For"),
			r.Header.Get("X-Forwarded-Proto"), r.ContentLength, r.TransferEncoding, len(b))
	})
	mux.HandleFunc("/events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		for {
			select {
			case text, ok := <-p.next:
				if !ok {
					return
				}
				fmt.Fprintf(w, "data: %s\n\n", text)
				_ = http.NewResponseController(w).Flush()
			case <-r.Context().Done():
				p.left <- struct{}{}
				return
			}
		}
	})
	mux.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://169.254.169.254/latest/meta-data/", http.StatusFound)
	})
	mux.HandleFunc("/page", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, page)
	})
	mux.HandleFunc("/quota", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		_, _ = io.WriteString(w, "here")
	})
	finished := make(chan struct{})
	mux.HandleFunc("/finished", func(http.ResponseWriter, *http.Request) { close(finished) })
	mux.HandleFunc("/held", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-finished:
		case <-r.Context().Done():
		}
	})
	mux.Handle("/socket/", websocket.Server{Handler: func(c *websocket.Conn) {
		var text string
		for websocket.Message.Receive(c, &text) == nil && websocket.Message.Send(c, text) == nil {
			continue
		}
		select {
		case p.closed <- struct{}{}:
		default:
		}
	}})
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	return p
}

// Real clients work through the gateway: curl, gRPC, WebSockets, server-sent events and a browser.
func TestGatewayClients(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	for name, test := range map[string]func(*testing.T, *front){
		"curl": curlClient, "curl uploads": curlUploads, "curl is denied": curlDenied, "redirects": redirects,
		"gRPC": grpcClient, "gRPC errors": grpcRefused, "WebSocket": socketClient, "events": eventClient, "browser": browserClient,
	} {
		t.Run(name, func(t *testing.T) { test(t, f) })
	}
	socketDrained(t, f)
}

// secure are the arguments with which curl trusts the gateway's certificate.
func (f *front) secure(args ...string) []string { return append([]string{"--cacert", f.ca}, args...) }

func curlClient(t *testing.T, f *front) {
	const out = "%{http_version} %{http_code} "
	for want, args := range map[string][]string{
		"1.1 200 GET /a?b=c for=127.0.0.1 proto=http length=0 [] got=0\n":       {"-w", out, "http://" + f.plain + "/a?b=c"},
		"1 200 GET /old for=127.0.0.1 proto=http length=0 [] got=0\n":           {"-0", "-w", out, "http://" + f.plain + "/old"},
		"2 200 GET /h2c for=127.0.0.1 proto=http length=0 [] got=0\n":           {"--http2-prior-knowledge", "-w", out, "http://" + f.plain + "/h2c"},
		"1.1 200 GET /upgrade for=127.0.0.1 proto=http length=0 [] got=0\n":     {"--http2", "-w", out, "http://" + f.plain + "/upgrade"}, // requests an upgrade to h2c, which is not supported
		"2 200 GET /a for=127.0.0.1 proto=https length=0 [] got=0\n":            f.secure("--http2", "-w", out, "https://"+f.tls+"/a"),
		"1.1 200 GET /a for=127.0.0.1 proto=https length=0 [] got=0\n":          f.secure("--http1.1", "-w", out, "https://"+f.tls+"/a"),
		"2 200 POST /form for=127.0.0.1 proto=https length=5 [] got=5\n":        f.secure("-d", "a=b&c", "-w", out, "https://"+f.tls+"/form"),
		"1.1 200 PROPFIND /a for=127.0.0.1 proto=http length=0 [] got=0\n":      {"-X", "PROPFIND", "-w", out, "http://" + f.plain + "/a"},
		"1.1 200 OPTIONS /cors for=127.0.0.1 proto=http length=0 [] got=0\n":    {"-X", "OPTIONS", "-w", out, "http://" + f.plain + "/cors"},
		"1.1 200 DELETE /a/ for=127.0.0.1 proto=https length=0 [] got=0\n":      f.secure("--http1.1", "-X", "DELETE", "-w", out, "https://"+f.tls+"/a/"),
		"1.1 200 GET /%C3%A9 for=127.0.0.1 proto=http length=0 [] got=0\n":      {"-w", out, "http://" + f.plain + "/%c3%a9"},
		"1.1 200 GET /q?a=%2f&b=+ for=127.0.0.1 proto=http length=0 [] got=0\n": {"-w", out, "http://" + f.plain + "/q?a=%2f&b=+"},
	} {
		version, body, _ := strings.Cut(curl(t, args...), "\n")
		if got := body + version + "\n"; got != want {
			t.Errorf("curl %q: %q, want %q", args, got, want)
		}
	}
}

// Bodies of known and unknown length are streamed, and clients that expect 100-continue receive it.
func curlUploads(t *testing.T, f *front) {
	const size = 3 << 20
	file := filepath.Join(t.TempDir(), "upload")
	write(t, file, strings.Repeat("x", size))
	for _, args := range [][]string{
		{"-H", "Expect: 100-continue", "--data-binary", "@" + file, "http://" + f.plain + "/upload"},
		{"-H", "Transfer-Encoding: chunked", "-T", file, "http://" + f.plain + "/upload"},
		{"-T", file, "http://" + f.plain + "/upload"},
		f.secure("-H", "Expect: 100-continue", "-T", file, "https://"+f.tls+"/upload"),
		f.secure("--http1.1", "-H", "Transfer-Encoding: chunked", "-T", file, "https://"+f.tls+"/upload"),
	} {
		want := fmt.Sprintf("length=%d [] got=%[1]d\n", size)
		if strings.Contains(strings.Join(args, " "), "chunked") {
			want = fmt.Sprintf("length=-1 [chunked] got=%d\n", size)
		}
		if got := curl(t, args...); !strings.HasSuffix(got, want) {
			t.Errorf("curl %q: %q, want %q", args, got, want)
		}
	}
	got := curl(t, "-v", "--stderr", "-", "-H", "Expect: 100-continue", "--expect100-timeout", "60", "--data-binary", "@"+file, "http://"+f.plain+"/upload")
	if !strings.Contains(got, "< HTTP/1.1 100 Continue") {
		t.Errorf("curl received no 100 Continue:\n%.2000s", got)
	}
	cmd := exec.CommandContext(t.Context(), "curl", "-sS", "-N", "-T", "-", "http://"+f.plain+"/upload") // a body of unknown length
	cmd.Stdin = bytes.NewReader(make([]byte, 100_000))
	if out, err := cmd.Output(); err != nil || !strings.HasSuffix(string(out), "length=-1 [chunked] got=100000\n") {
		t.Errorf("from a pipe: %q, %v", out, err)
	}
}

// A denial is readable over HTTP/1 and HTTP/2, also for an upload, whose body is then not sent.
func curlDenied(t *testing.T, f *front) {
	file := filepath.Join(t.TempDir(), "upload")
	write(t, file, strings.Repeat("x", 1<<20))
	for name, args := range map[string][]string{
		"1.1":         {"http://" + f.plain + "/posts"},
		"2":           f.secure("-H", "Content-Type: text/plain", "https://"+f.tls+"/posts"),
		"1.1 expects": {"-H", "Expect: 100-continue", "--expect100-timeout", "60", "http://" + f.plain + "/posts"},
	} {
		body := "@" + file
		if name == "2" {
			body = "hello" // old versions of curl drop a response that arrives while they still send
		}
		args = append([]string{"-sS", "-i", "-H", "X-Api-Key: curl " + name, "--data-binary", body}, args...)
		for i := range 2 {
			if got := curl(t, args...); !strings.Contains(got, " 200") || !strings.Contains(strings.ToLower(got), fmt.Sprintf("x-ratelimit-remaining: %d\r\n", 1-i)) {
				t.Errorf("%s: request %d: %s", name, i+1, got)
			}
		}
		out, err := exec.CommandContext(t.Context(), "curl", append(args, "-w", "\n%{size_upload}")...).Output()
		if err != nil && len(out) == 0 {
			t.Fatalf("%s: %v", name, err)
		}
		head, rest, _ := strings.Cut(string(out), "\r\n\r\n")
		answer, uploaded, _ := strings.Cut(rest, "\n")
		head = strings.ToLower(head)
		for _, want := range []string{
			"429", "\r\nretry-after: 1", "\r\nx-ratelimit-limit: 2\r\n", "\r\nx-ratelimit-remaining: 0\r\n", "\r\nratelimit-policy: \"posts\";q=2;w=3600\r\n",
			"\r\nratelimit: \"posts\";r=0;t=1", "\r\ncontent-type: application/problem+json", "\r\nx-request-id: ",
		} {
			if !strings.Contains(head, want) {
				t.Errorf("%s: no %q in\n%s", name, want, head)
			}
		}
		var problem struct {
			Title    string
			Status   int
			Detail   string
			Violated []string `json:"violated-policies"`
		}
		if err := json.Unmarshal([]byte(answer), &problem); err != nil || problem.Status != 429 || len(problem.Violated) != 1 || problem.Violated[0] != "posts" ||
			!strings.HasPrefix(problem.Detail, "Rate limit posts exceeded; retry in 1") {
			t.Errorf("%s: the body is %s, %v", name, answer, err)
		}
		if name == "1.1 expects" && strings.TrimSpace(uploaded) != "0" {
			t.Errorf("%s bytes of a denied upload were sent", strings.TrimSpace(uploaded))
		}
	}
}

// The gateway passes redirects of an upstream to the client and does not follow them.
func redirects(t *testing.T, f *front) {
	if got := curl(t, "-o", "/dev/null", "-w", "%{http_code} %header{location}", "http://"+f.plain+"/away"); got != "302 http://169.254.169.254/latest/meta-data/" {
		t.Errorf("got %s", got)
	}
}

// Server-sent events arrive one by one: each is read before the next is sent.
func eventClient(t *testing.T, f *front) {
	for _, args := range [][]string{{"http://" + f.plain + "/events"}, f.secure("https://" + f.tls + "/events")} {
		cmd := exec.CommandContext(t.Context(), "curl", append([]string{"-sS", "-N"}, args...)...)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for i := range 5 {
			want := fmt.Sprintf("data: event %d\n\n", i)
			f.app.next <- fmt.Sprintf("event %d", i)
			got := make([]byte, len(want))
			if _, err := io.ReadFull(out, got); err != nil || string(got) != want {
				t.Fatalf("got %q, %v", got, err)
			}
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		<-f.app.left // wait until the application has noticed, because it would otherwise take the event of the next client
	}
}

// dialSocket opens a WebSocket.
func (f *front) dialSocket(t *testing.T, path, key string) (*websocket.Conn, error) {
	t.Helper()
	cfg, err := websocket.NewConfig("ws://"+f.plain+path, "http://example.com")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Header = http.Header{"X-Api-Key": {key}}
	return cfg.DialContext(t.Context())
}

func heard(t *testing.T, c *websocket.Conn, text string) {
	t.Helper()
	var got string
	if err := websocket.Message.Send(c, text); err != nil {
		t.Error(err)
	}
	if err := websocket.Message.Receive(c, &got); err != nil || got != text {
		t.Errorf("got %.50q of %d bytes, %v", got, len(got), err)
	}
}

// A WebSocket is one long request: it holds its permit until it is closed.
func socketClient(t *testing.T, f *front) {
	var open []*websocket.Conn
	for range 2 {
		c, err := f.dialSocket(t, "/socket/counted", "socket")
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"hello", "", strings.Repeat("é", 50_000), "again"} {
			heard(t, c, text)
		}
		open = append(open, c)
	}
	if c, err := f.dialSocket(t, "/socket/counted", "socket"); err == nil {
		c.Close()
		t.Fatal("three WebSockets are open where two are allowed")
	}
	c, err := f.dialSocket(t, "/socket/counted", "another")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	open[0].Close()
	<-f.app.closed
	for { // the permit is released when the gateway has seen both sides close
		if c, err = f.dialSocket(t, "/socket/counted", "socket"); err == nil {
			break
		}
	}
	heard(t, c, "there is room again")
	heard(t, open[1], "still here")
	c.Close()
	open[1].Close()
}

// A gateway that shuts down closes open WebSockets.
func socketDrained(t *testing.T, f *front) {
	c, err := f.dialSocket(t, "/socket/free", "drained")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	heard(t, c, "hello")
	f.process.signal(t, syscall.SIGTERM)
	if _, err := io.Copy(io.Discard, c); err != nil {
		t.Logf("the connection closes with %v", err)
	}
	<-f.process.ended
}
