package config_test

import (
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/internal/cors"
)

const gatewayAll = `
gateway:
  upstreams:
    api:
      servers: ["http://127.0.0.1:9001", "https://b.example.com"]
      load_balancing: hash
      hash_by: header:X-User
      health_check: {path: /healthz, interval: 6s, timeout: 2s, healthy_threshold: 3, unhealthy_threshold: 4}
      outlier_detection: {consecutive_failures: 7, ejection_time: 8s}
      timeouts: {connect: 9s, response_header: 10s, idle: 11s}
      retries: 2
      tls: {ca_file: uca, cert_file: ucrt, key_file: /ukey, server_name: internal}
    plain: {servers: h2c://grpc:50051}
  routes:
    - host: "*.example.com"
      path: /v1/{id}/**
      upstream: api
      strip_prefix: /v1
      add_prefix: /api/
      host_header: upstream
      max_body_size: 1GiB
      timeout: 2m
      authentication: [api_keys, jwt]
      allow_anonymous: true
      cors:
        origins: ["https://app.example.com", "https://*.example.org"]
        methods: [GET, PUT]
        headers: [X-Api-Key]
        exposed_headers: [X-App]
        credentials: true
        max_age: 0s
    - {upstream: plain, max_body_size: off}
  max_requests: 8
  max_requests_per_address: 7
  max_buffered_size: 64MiB
  allowed_ips: [10.0.0.0/8, "::1"]
  denied_ips: 192.0.2.1
  access_log: {file: access.log, format: combined, include_query: true}
`

func gatewayWanted(in func(string) string) config.Gateway {
	plain := config.Upstream{
		Name: "plain", Servers: []string{"h2c://grpc:50051"}, LoadBalancing: "round_robin", HashBy: "ip",
		HealthCheck:      config.HealthCheck{Interval: 5 * time.Second, Timeout: time.Second, HealthyThreshold: 2, UnhealthyThreshold: 3},
		OutlierDetection: config.OutlierDetection{ConsecutiveFailures: 5, EjectionTime: 10 * time.Second},
		Timeouts:         config.Timeouts{Connect: time.Second, ResponseHeader: 30 * time.Second, Idle: 90 * time.Second}, Retries: 1,
	}
	return config.Gateway{
		Address: ":8000", TLS: config.TLS{CertFile: in("g.crt"), KeyFile: in("g.key"), ClientCAFile: in("ga.crt")}, MaxConnections: 14, MaxConnectionsPerAddress: 6, MaxRequests: 8, MaxRequestsPerAddress: 7, MaxBufferedSize: 64 << 20,
		MaxHeaderSize: 32 << 10, MaxStreams: 15, Certificates: []config.KeyPair{{CertFile: in("g2.crt"), KeyFile: "/g2.key"}},
		ACME: config.ACME{
			Domains: []string{"api.example.com"}, Email: "ops@example.com", DirectoryURL: "https://acme.example.com/dir", CAFile: in("aca"),
			CacheDir: in("acache"), HTTPAddress: ":80",
		},
		Upstreams: []config.Upstream{{
			Name: "api", Servers: []string{"http://127.0.0.1:9001", "https://b.example.com"}, LoadBalancing: "hash", HashBy: "header:X-User",
			HealthCheck: config.HealthCheck{
				Path: "/healthz", Interval: 6 * time.Second, Timeout: 2 * time.Second, HealthyThreshold: 3, UnhealthyThreshold: 4,
			},
			OutlierDetection: config.OutlierDetection{ConsecutiveFailures: 7, EjectionTime: 8 * time.Second},
			Timeouts:         config.Timeouts{Connect: 9 * time.Second, ResponseHeader: 10 * time.Second, Idle: 11 * time.Second},
			Retries:          2, TLS: config.ClientTLS{CAFile: in("uca"), CertFile: in("ucrt"), KeyFile: "/ukey"}, ServerName: "internal",
		}, plain},
		Routes: []config.Route{
			{
				Host: "*.example.com", Path: "/v1/{id}/**", Upstream: "api", StripPrefix: "/v1", AddPrefix: "/api", HostHeader: "upstream",
				MaxBodySize: 1 << 30, Timeout: 2 * time.Minute, Authentication: []string{"api_keys", "jwt"}, AllowAnonymous: true,
				CORS: cors.Config{
					AllowedOrigins: []string{"https://app.example.com", "https://*.example.org"}, AllowedMethods: []string{"GET", "PUT"},
					AllowedHeaders: []string{"X-Api-Key"}, ExposedHeaders: []string{"X-App"}, AllowCredentials: true,
				},
			},
			{
				Path: "/**", Upstream: "plain", HostHeader: "client", Timeout: time.Minute,
				CORS: cors.Config{AllowedMethods: cors.DefaultMethods(), AllowedHeaders: []string{"*"}, MaxAge: 10 * time.Minute},
			},
		},
		AllowedIPs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")},
		DeniedIPs:  []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")},

		AccessLog: config.AccessLog{File: in("access.log"), Format: "combined", IncludeQuery: true},
	}
}

// on returns a configuration with a gateway listener; text begins in line 2.
func on(text string) string {
	return "listeners: {gateway: {address: '127.0.0.1:0'}}\n" + text
}

func TestGatewayFaults(t *testing.T) {
	const up = "gateway: {upstreams: {a: {servers: 'http://h'}}, routes: "
	for name, tt := range map[string]struct{ text, want string }{
		"no routes":           {on(""), `f:1:32: listeners.gateway.address: there are no routes, and every request would get 404: write gateway: {upstreams: {api: {servers: [http://127.0.0.1:9000]}}, routes: [{path: /**, upstream: api}]}`},
		"no listener":         {up + "[{upstream: a}]}", `f:1:10: gateway: the listener is off: write listeners: {gateway: {address: 127.0.0.1:8000}}, or remove this section`},
		"an empty list":       {on(up + "[]}"), `f:2:58: gateway.routes: the list is empty: write - {path: /**, upstream: NAME}`},
		"not a list":          {on(up + "{upstream: a}}"), `f:2:58: gateway.routes: is a mapping: write a list, one "- entry" per line`},
		"a misspelt key":      {on(up + "[{upstrem: a}]}"), `f:2:60: gateway.routes: there is no key "upstrem": did you mean "upstream"?`},
		"no upstream":         {on(up + "[{path: /a}]}"), `f:2:59: gateway.routes: there is no upstream: write upstream: and the name of one of gateway.upstreams`},
		"another upstream":    {on(up + "[{upstream: b}]}"), `f:2:70: gateway.routes.upstream: is "b": write a`},
		"no upstreams":        {on("gateway: {routes: [{upstream: b}]}"), `f:2:20: gateway.routes.upstream: there is no upstream "b": write gateway: {upstreams: {b: {servers: [http://127.0.0.1:9000]}}}`},
		"a path":              {on(up + "[{upstream: a, path: v1}]}"), `f:2:79: gateway.routes.path: path "v1" does not begin with a slash: write "/v1"`},
		"stars":               {on(up + "[{upstream: a, path: /**/x}]}"), `f:2:79: gateway.routes.path: path "/**/x": ** is only valid as the last segment, as in /files/**`},
		"the same":            {on(up + "[{upstream: a, path: /x/*},\n {upstream: a, path: '/x/{id}/'}]}"), `f:3:2: gateway.routes: the route in line 2 matches the same requests: remove one of them`},
		"the same host":       {on(up + "[{upstream: a, host: A.example.com},\n {upstream: a, host: a.example.com.}]}"), `f:3:2: gateway.routes: the route in line 2 matches the same requests: remove one of them`},
		"a host with port":    {on(up + "[{upstream: a, host: 'a:80'}]}"), `f:2:79: gateway.routes.host: is "a:80": write a name without scheme and port, such as api.example.com, or "*.example.com" for all subdomains`},
		"a star inside":       {on(up + "[{upstream: a, host: 'a.*.com'}]}"), `f:2:79: gateway.routes.host: is "a.*.com": write a name without scheme and port, such as api.example.com, or "*.example.com" for all subdomains`},
		"a prefix of nothing": {on(up + "[{upstream: a, path: '/v1/{id}', strip_prefix: /v1/x}]}"), `f:2:105: gateway.routes.strip_prefix: not all paths that match /v1/{id} begin with /v1/x: begin path with it, as in /v1/x/**`},
		"an odd prefix":       {on(up + "[{upstream: a, add_prefix: '/a%2fb'}]}"), `f:2:85: gateway.routes.add_prefix: is "/a%2fb": write a plain path, such as /v1`},
		"the gateway's own":   {on(up + "[{upstream: a, path: /.sluice/x}]}"), `f:2:59: gateway.routes.path: paths that begin with /.sluice are reserved for the gateway: choose another path`},
		"a size":              {on(up + "[{upstream: a, max_body_size: 5}]}"), `f:2:88: gateway.routes.max_body_size: is 5: write a size such as 512B, 64KiB, 16MiB or 2GiB`},
		"a server":            {on("gateway: {upstreams: {a: {servers: ['http://h', h]}}, routes: [{upstream: a}]}"), `f:2:49: gateway.upstreams.a.servers: is "h": write http://host:port, https://host:port or h2c://host:port, without a path: routes have add_prefix for it`},
		"a server's path":     {on("gateway: {upstreams: {a: {servers: 'http://h/x'}}, routes: [{upstream: a}]}"), `f:2:36: gateway.upstreams.a.servers: is "http://h/x": write http://host:port, https://host:port or h2c://host:port, without a path: routes have add_prefix for it`},
		"no servers":          {on("gateway: {upstreams: {a: {retries: 1}}, routes: [{upstream: a}]}"), `f:2:26: gateway.upstreams.a: there are no servers: write servers: [http://127.0.0.1:9000]`},
		"a name":              {on("gateway: {upstreams: {'a b': {servers: 'http://h'}}, routes: [{upstream: 'a b'}]}"), `f:2:23: gateway.upstreams: "a b" is not a name: use letters, digits, - and _`},
		"hash by":             {on("gateway: {upstreams: {a: {servers: 'http://h', hash_by: path}}, routes: [{upstream: a}]}"), `f:2:57: gateway.upstreams.a.hash_by: is for load_balancing: hash, and this is round_robin: remove it, or change load_balancing`},
		"hash by what":        {on("gateway: {upstreams: {a: {servers: 'http://h', load_balancing: hash, hash_by: user}}, routes: [{upstream: a}]}"), `f:2:79: gateway.upstreams.a.hash_by: is "user": write ip, path, header:NAME or cookie:NAME`},
		"health too often":    {on("gateway: {upstreams: {a: {servers: 'http://h', health_check: {path: /, interval: 1ns, timeout: 1ns}}}, routes: [{upstream: a}]}"), `f:2:82: gateway.upstreams.a.health_check.interval: 1ns is not between 100ms and 3650d`},
		"health of nothing":   {on("gateway: {upstreams: {a: {servers: 'http://h', health_check: {interval: 1s}}}, routes: [{upstream: a}]}"), `f:2:62: gateway.upstreams.a.health_check: there is no path: write path: /healthz, or remove it`},
		"TLS of nothing":      {on("gateway: {upstreams: {a: {servers: 'http://h', tls: {ca_file: c}}}, routes: [{upstream: a}]}"), `f:2:53: gateway.upstreams.a.tls: no server uses TLS: begin one of servers with https://, or remove it`},
		"half of a pair":      {on("gateway: {upstreams: {a: {servers: 'https://h', tls: {key_file: c}}}, routes: [{upstream: a}]}"), `f:2:54: gateway.upstreams.a.tls: a certificate and its key go together: set cert_file and key_file, or neither`},
		"an address":          {on(up + "[{upstream: a}], allowed_ips: [10.0.0.1/8]}"), `f:2:89: gateway.allowed_ips: "10.0.0.1/8" has bits set after the first 8: write 10.0.0.0/8, or the address alone`},
		"a log of nothing":    {on(up + "[{upstream: a}], access_log: {include_query: true}}"), `f:2:87: gateway.access_log: there is no file: write file: access.log, or - for standard output`},
		"no addresses":        {on(up + "[{upstream: a}], denied_ips: []}"), `f:2:87: gateway.denied_ips: the list is empty: write an entry, or remove it`},
		"several": {on(up + "[{path: a}, {upstream: a, timeout: 5}]}"), `f:2:66: gateway.routes.path: path "a" does not begin with a slash: write "/a"
f:2:93: gateway.routes.timeout: 5 has no unit: write 5s for seconds, or another duration such as 10m, 1h30m or 7d`},
		"CORS of nothing":  {on(up + "[{upstream: a, cors: {credentials: true}}]}"), `f:2:79: gateway.routes.cors: no origin is allowed: list the origins of the pages, such as https://app.example.com, or "*" for all`},
		"CORS for all":     {on(up + "[{upstream: a, cors: {origins: '*', credentials: true}}]}"), `f:2:79: gateway.routes.cors: credentials cannot be allowed to origin "*": any website could act as its visitors. List the origins, such as https://app.example.com or https://*.example.com, or leave credentials out`},
		"CORS, no scheme":  {on(up + "[{upstream: a, cors: {origins: [https://a.example, b.example]}}]}"), `f:2:109: gateway.routes.cors.origins: origin "b.example" has no scheme: write scheme and host, such as https://app.example.com`},
		"CORS, methods":    {on(up + "[{upstream: a, cors: {origins: '*', methods: [put]}}]}"), `f:2:104: gateway.routes.cors.methods: "put" is not a method: write methods in upper case, such as GET or DELETE`},
		"no such variable": {on(up + "[{upstream: '${NOBODY}'}]}"), `f:2:70: gateway.routes: there is no environment variable "NOBODY": set it, or write $$ for a $`},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := config.Parse("f", []byte(tt.text), noEnv); err == nil || err.Error() != tt.want {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}

// Environment variables are replaced once: $ in their values has no meaning.
func TestGatewayVariables(t *testing.T) {
	c, err := config.Parse("f", []byte(on("gateway: {upstreams: {a: {servers: 'http://${H}'}}, routes: [{upstream: a, add_prefix: '/$$$$x${P}'}]}")),
		func(name string) (string, bool) { return map[string]string{"H": "h:1", "P": "$$"}[name], true })
	if err != nil || c.Gateway.Upstreams[0].Servers[0] != "http://h:1" || c.Gateway.Routes[0].AddPrefix != "/$$x$$" {
		t.Errorf("got %+v, %v", c.Gateway, err)
	}
}

// TestGatewayDocumented checks that docs/gateway.md and docs/upstreams.md list the keys of the code.
func TestGatewayDocumented(t *testing.T) {
	documented(t, "../../../docs/gateway.md", "<!-- keys of a route -->\n", config.RouteTable())
	documented(t, "../../../docs/upstreams.md", "<!-- keys of an upstream -->\n", config.UpstreamTable())
}

// documented checks the table of keys after begin and the configurations that a page shows.
func documented(t *testing.T, path, begin, table string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const end = "<!-- end of keys -->"
	text := string(b)
	head, rest, found := strings.Cut(text, begin)
	got, tail, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no place for the keys: %s", path, begin)
	}
	if want := "\n" + table + "\n"; got != want {
		if !*update {
			t.Errorf("%s has not the keys of the code: go test ./cmd/internal/config -update writes them", path)
		}
		text = head + begin + want + end + tail
	}
	for _, part := range strings.Split(text, "```yaml\n")[1:] {
		shown, _, _ := strings.Cut(part, "```")
		if _, err := config.Parse("shown", []byte(shown), noEnv); err != nil {
			t.Errorf("%v in\n%s", err, shown)
		}
	}
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
