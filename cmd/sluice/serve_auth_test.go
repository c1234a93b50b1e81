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

// exampleRules are the rules that the examples of proxies use.
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

// The service that the examples ask is sound.
func TestAuthExample(t *testing.T) {
	for _, args := range [][]string{{"check", "../../examples/auth/sluice.yaml"}, {"fmt", "--check", exampleRules}} {
		if code, stdout, stderr := sluiceRun(t, args...); code != term.ExitFine || strings.Contains(stdout+stderr, "warning") {
			t.Errorf("sluice %v ends with %d\n%s%s", args, code, stdout, stderr)
		}
	}
}

// Traefik cannot be had here. Its example is YAML, asks where Sluice answers, and does not let clients say what they ask for.
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
		t.Errorf("it asks %+v", f)
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

// A proxyExample starts a proxy as its example has it, but for addresses and what is replaced.
type proxyExample func(t *testing.T, sluice string, replace ...string) forwardauthtest.Proxy

func startNginx(t *testing.T, sluice string, replace ...string) forwardauthtest.Proxy {
	t.Helper()
	forwardauthtest.Need(t, "nginx")
	address := tcptest.FreeAddress(t)
	// Files that nginx writes would be where the system's own nginx has them.
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

// proxyExamples say how to have them closed while Sluice is away, since they are open, and how to have less patience.
var proxyExamples = map[string]struct {
	start     proxyExample
	closed    []string
	impatient []string
}{
	"nginx": {
		startNginx,
		[]string{"error_page 502 504 = @sluice_away;", ""},
		[]string{"proxy_read_timeout 2s;", "proxy_read_timeout 200ms;"},
	},
	"haproxy": {
		startHAProxy,
		[]string{"#http-request deny deny_status 503", "http-request deny deny_status 503"},
		[]string{"timeout = 2000", "timeout = 200"},
	},
}

// Clients of nginx and HAProxy are limited, are told so, and cannot get around it.
func TestServeAuth(t *testing.T) {
	for name, proxy := range proxyExamples {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy.start(t, startAuth(t, "").http).Run(t)
		})
	}
}

// What proxies ask is counted by the status that is meant.
func TestServeAuthMetrics(t *testing.T) {
	p := startAuth(t, "metrics: {on_http: true}")
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
		t.Errorf("a question that is none: %d", got)
	}
	got := p.metrics(t)
	for _, want := range []string{
		`sluice_requests_total{code="204",protocol="auth"} 2`, `sluice_requests_total{code="403",protocol="auth"} 2`,
		`sluice_requests_total{code="500",protocol="auth"} 1`, `sluice_requests_total{code="429",protocol="auth"} 0`,
	} {
		if !strings.Contains(got, "\n"+want) {
			t.Errorf("there is no %s", want)
		}
	}
}

// While Sluice cannot be reached requests pass or not, as the proxy was told.
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

// A Sluice that takes connections and never answers is away too.
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

// A rule that is closed while the store is away refuses, also where the proxy lets requests pass while Sluice is away.
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
