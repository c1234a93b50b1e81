package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/upstream"
)

// A proxyJob is a server that this program runs.
type proxyJob struct {
	Kind, Address, Origin string
}

func proxyChild(p proxyJob) (*exec.Cmd, error) {
	return runFloorAs(func(place) job { return job{Proxy: &p} })(place{})
}

// runProxyAs runs this program as a proxy. The redis field of a place is the address of the upstream server.
func runProxyAs(kind string) func(place) (*exec.Cmd, error) {
	return func(at place) (*exec.Cmd, error) {
		return proxyChild(proxyJob{Kind: kind, Address: at.grpc, Origin: "http://" + at.redis})
	}
}

// serveProxy is the child process that runProxyAs starts.
func serveProxy(p *proxyJob) error {
	h, err := p.handler()
	if err != nil {
		return err
	}
	s := &http.Server{Addr: p.Address, Handler: h, ReadHeaderTimeout: 10 * time.Second}
	return s.ListenAndServe()
}

func (p *proxyJob) handler() (http.Handler, error) {
	switch p.Kind {
	case "origin":
		return new(originServer), nil
	case "429":
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "Too Many Requests", http.StatusTooManyRequests)
		}), nil
	case "bare":
		return bareProxy(p.Origin)
	}
	return upstream.New(upstream.Config{Name: "origin", Servers: []string{p.Origin}})
}

// runGateway runs sluice serve with a gateway and rules.
func runGateway(rules string) func(place) (*exec.Cmd, error) {
	return func(at place) (*exec.Cmd, error) {
		if err := os.WriteFile(filepath.Join(at.dir, "rules.yaml"), []byte(rules), 0o644); err != nil {
			return nil, err
		}
		file := filepath.Join(at.dir, "sluice.yaml")
		text := fmt.Sprintf("listeners: {grpc: {address: off}, http: {address: %q}, admin: {address: off}, gateway: {address: %q}}\n"+
			"rules: {paths: [rules.yaml]}\n"+
			"gateway: {upstreams: {origin: {servers: [%q]}}, routes: [{path: /**, upstream: origin}]}\n", at.http, at.grpc, "http://"+at.redis)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return nil, err
		}
		return exec.Command(binary("sluice"), "serve", "--config", file), nil
	}
}

// originBody is the response body of the upstream server.
var originBody = bytes.Repeat([]byte("sixteen bytes..\n"), 8)

// originServer is the upstream server, as fast as net/http is.
type originServer struct{ seen atomic.Int64 }

func (o *originServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/count" {
		_, _ = io.WriteString(w, strconv.FormatInt(o.seen.Load(), 10))
		return
	}
	if n, err := io.Copy(io.Discard, r.Body); err != nil || (r.Method == http.MethodPost && n != gatewayPosted) {
		http.Error(w, "unexpected request body", http.StatusBadRequest)
		return
	}
	if r.Header.Get("X-User") != "ada" || r.Host == "" {
		http.Error(w, "unexpected X-User", http.StatusBadRequest)
		return
	}
	o.seen.Add(1)
	w.Header().Set("Content-Type", "text/plain")
	_, _ = w.Write(originBody)
}

// bareProxy returns the standard library's proxy, configured for more than its default of two idle connections.
func bareProxy(origin string) (http.Handler, error) {
	u, err := url.Parse(origin)
	if err != nil {
		return nil, err
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy, t.MaxIdleConns, t.MaxIdleConnsPerHost, t.DisableCompression = nil, 0, 256, true
	return &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(u); r.Out.Host = r.In.Host },
		Transport: t, BufferPool: new(bufferPool),
	}, nil
}

type bufferPool struct{ pool sync.Pool }

func (b *bufferPool) Get() []byte {
	if v, ok := b.pool.Get().(*[]byte); ok {
		return *v
	}
	return make([]byte, 32<<10)
}

func (b *bufferPool) Put(v []byte) { b.pool.Put(&v) }

// gatewayLimit is the number of allowed requests for /v1/limited.
const gatewayLimit = 5

// gatewayRules are limits that are never reached, except the last.
const gatewayRules = `rules:
  - name: whole-system
    limit: 1000000/s
  - name: requests-per-ip
    per: [ip]
    limit: 10000000/min
  - name: items-per-user
    match: {path: /v1/items/**}
    per: ["header:X-User"]
    limit: 10000000/min
  - name: limited
    match: {path: /v1/limited}
    per: [ip]
    limit: 5/week
`

func runCaddy(at place) (*exec.Cmd, error) {
	file := filepath.Join(at.dir, "Caddyfile")
	text := fmt.Sprintf("{\n\tadmin off\n\tauto_https off\n\tlog {\n\t\tlevel ERROR\n\t}\n}\nhttp://:%s {\n\tbind 127.0.0.1\n\treverse_proxy %s {\n"+
		"\t\ttransport http {\n\t\t\tkeepalive_idle_conns_per_host 256\n\t\t}\n\t}\n}\n", at.port(at.grpc), at.redis)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return nil, err
	}
	cmd := exec.Command(binary("caddy"), "run", "--config", file, "--adapter", "caddyfile")
	cmd.Env = append(os.Environ(), "XDG_DATA_HOME="+at.dir, "XDG_CONFIG_HOME="+at.dir)
	return cmd, nil
}

// runNginx runs nginx as a single process, whose CPU time is read.
func runNginx(at place) (*exec.Cmd, error) {
	path, err := exec.LookPath("nginx")
	if err != nil {
		path = "/usr/sbin/nginx"
	}
	file := filepath.Join(at.dir, "nginx.conf")
	text := fmt.Sprintf(nginxConf, at.dir, at.redis, at.grpc)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return nil, err
	}
	return exec.Command(path, "-p", at.dir, "-c", file, "-e", "stderr"), nil
}

const nginxConf = `daemon off; master_process off; worker_processes 1; pid %[1]s/nginx.pid; error_log stderr crit;
events { worker_connections 1024; }
http {
  access_log off; keepalive_requests 100000000;
  client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
  limit_req_zone $binary_remote_addr zone=many:10m rate=1000000r/s;
  limit_req_zone $binary_remote_addr zone=few:10m rate=1r/m;
  limit_req_status 429;
  upstream origin { server %[2]s; keepalive 256; keepalive_requests 100000000; }
  server {
    listen %[3]s;
    proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $host;
    location / { limit_req zone=many burst=100000 nodelay; proxy_pass http://origin; }
    location /v1/limited { limit_req zone=few burst=2 nodelay; proxy_pass http://origin; }
  }
}
`
