package main

import (
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/cmd/internal/testenv/forwardauthtest"
	"github.com/sluiceproject/sluice/internal/testenv/tcptest"
)

// exampleRules is the directory of the rules in the examples of proxies.
const exampleRules = "../../examples/auth/rules.yaml"

// startAuth runs sluice serve with the rules of the examples.
func startAuth(t *testing.T, more string) *process {
	t.Helper()
	rules, err := filepath.Abs(exampleRules)
	if err != nil {
		t.Fatal(err)
	}
	return startServe(t, fmt.Sprintf("rules: {paths: [%q]}\n%s", rules, more))
}

// The configuration and rules of the examples are valid.
func TestAuthExample(t *testing.T) {
	for _, args := range [][]string{{"check", "../../examples/auth/sluice.yaml"}, {"fmt", "--check", exampleRules}} {
		if code, stdout, stderr := sluiceRun(t, args...); code != term.ExitFine || strings.Contains(stdout+stderr, "warning") {
			t.Errorf("sluice %v: exit %d\n%s%s", args, code, stdout, stderr)
		}
	}
}

// Traefik is not installed here, so that only its configuration is checked: it is YAML, uses the endpoint of Sluice, and does not
// trust forwarding headers of clients.
func TestTraefikExample(t *testing.T) {
	var dynamic struct {
		HTTP struct {
			Middlewares map[string]struct {
				ForwardAuth struct {
					Address            string
					TrustForwardHeader *bool `yaml:"trustForwardHeader"`
				} `yaml:"forwardAuth"`
			}
			Routers map[string]struct{ Middlewares []string }
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, "../../examples/traefik/dynamic.yml")), &dynamic); err != nil {
		t.Fatal(err)
	}
	f := dynamic.HTTP.Middlewares["sluice"].ForwardAuth
	if f.Address != "http://127.0.0.1:8080/v1/auth" || f.TrustForwardHeader == nil || *f.TrustForwardHeader {
		t.Errorf("forwardAuth is %+v", f)
	}
	if got := dynamic.HTTP.Routers["app"].Middlewares; len(got) != 1 || got[0] != "sluice" {
		t.Errorf("requests go through %q", got)
	}
	var static struct {
		Providers struct{ File struct{ Filename string } }
	}
	if err := yaml.Unmarshal([]byte(read(t, "../../examples/traefik/traefik.yml")), &static); err != nil || static.Providers.File.Filename != "examples/traefik/dynamic.yml" {
		t.Errorf("%v: it names %q", err, static.Providers.File.Filename)
	}
}

// proxyExample is the configuration of a proxy in the examples, with replaced addresses and other texts.
type proxyExample func(t *testing.T, sluice string, replace ...string) forwardauthtest.Proxy

func startNginx(t *testing.T, sluice string, replace ...string) forwardauthtest.Proxy {
	t.Helper()
	forwardauthtest.Need(t, "nginx")
	address := tcptest.FreeAddress(t)
	// Without this, nginx would write its files to the directories of the system's nginx.
	here := "access_log off;\n"
	for _, name := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		here += name + "_temp_path " + name + ";\n"
	}
	replace = append(replace, "access_log off;", here)
	directory := forwardauthtest.Example(t, "../../examples/nginx", sluice, address, forwardauthtest.App(t), replace...)
	forwardauthtest.Start(t, address, exec.Command("nginx", "-e", "stderr", "-p", directory, "-c", "nginx.conf", "-g", "master_process off;"))
	return forwardauthtest.Proxy{Address: address}
}

func startHAProxy(t *testing.T, sluice string, replace ...string) forwardauthtest.Proxy {
	t.Helper()
	forwardauthtest.Need(t, "haproxy")
	address := tcptest.FreeAddress(t)
	cmd := exec.Command("haproxy", "-f", "haproxy.cfg")
	cmd.Dir = forwardauthtest.Example(t, "../../examples/haproxy", sluice, address, forwardauthtest.App(t), replace...)
	forwardauthtest.Start(t, address, cmd)
	return forwardauthtest.Proxy{Address: address}
}

// proxyExamples contains, for each proxy, the change that makes it fail closed instead of open, and one that shortens its timeout.
var proxyExamples = map[string]struct {
	start     proxyExample
	closed    []string
	impatient []string
}{
	"nginx": {
		startNginx,
		[]string{"error_page 502 504 = @sluice_unavailable;", ""},
		[]string{"proxy_read_timeout 2s;", "proxy_read_timeout 200ms;"},
	},
	"haproxy": {
		startHAProxy,
		[]string{"#http-request deny deny_status 503", "http-request deny deny_status 503"},
		[]string{"timeout = 2000", "timeout = 200"},
	},
}

// nginx and HAProxy enforce the limits, send the denial to clients, and clients cannot bypass them.
func TestServeAuth(t *testing.T) {
	for name, proxy := range proxyExamples {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy.start(t, startAuth(t, "").http).Run(t)
		})
	}
}

// Requests of proxies are counted in the metrics with their status.
func TestServeAuthMetrics(t *testing.T) {
	p := startAuth(t, "metrics: {http_listener: true}")
	for _, path := range []string{"/v1/auth", "/v1/auth/nginx"} {
		for uri, want := range map[string]int{"/": 204, "/internal/x": 403} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.http+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header = http.Header{"X-Forwarded-Method": {"GET"}, "X-Forwarded-Uri": {uri}, "X-Forwarded-Host": {"h"}}
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			if resp.Body.Close(); resp.StatusCode != want {
				t.Errorf("%s: %d", path, resp.StatusCode)
			}
		}
	}
	if got := p.get(t, "/v1/auth/nginx"); got != http.StatusInternalServerError {
		t.Errorf("a malformed request: %d", got)
	}
	got := p.metrics(t)
	for _, want := range []string{
		`sluice_requests_total{code="204",protocol="auth"} 2`, `sluice_requests_total{code="403",protocol="auth"} 2`,
		`sluice_requests_total{code="500",protocol="auth"} 1`, `sluice_requests_total{code="429",protocol="auth"} 0`,
	} {
		if !strings.Contains(got, "\n"+want) {
			t.Errorf("no %s in the metrics", want)
		}
	}
}

// While Sluice cannot be reached, requests pass or not, as the proxy is configured.
func TestServeAuthAway(t *testing.T) {
	for name, proxy := range proxyExamples {
		for _, open := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, open %v", name, open), func(t *testing.T) {
				t.Parallel()
				var replace []string
				if !open {
					replace = proxy.closed
				}
				p := startAuth(t, "")
				front := proxy.start(t, p.http, replace...)
				p.signal(t, syscall.SIGTERM)
				<-p.ended
				front.CheckAway(t, open)
			})
		}
	}
}

// A Sluice that accepts connections and never responds counts as unavailable too.
func TestServeAuthHangs(t *testing.T) {
	for name, proxy := range proxyExamples {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hangs, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer hangs.Close()
			proxy.start(t, hangs.Addr().String(), proxy.impatient...).CheckAway(t, true)
		})
	}
}

// A rule that fails closed denies while the store is unavailable, even if the proxy fails open while Sluice is unavailable.
func TestServeAuthClosed(t *testing.T) {
	for name, proxy := range proxyExamples {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rules := filepath.Join(t.TempDir(), "rules.yaml")
			write(t, rules, strings.Replace(read(t, exampleRules), "limit: 10/h\n", "limit: 10/h\n    on_failure: closed\n", 1))
			away := tcptest.FreeAddress(t)
			p := startServe(t, fmt.Sprintf("rules: {paths: [%q]}\nstore: {kind: redis, url: 'redis://%s'}\n", rules, away))
			proxy.start(t, p.http).CheckClosed(t)
		})
	}
}
