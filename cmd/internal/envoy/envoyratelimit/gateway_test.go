package envoyratelimit

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	xds "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	conf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/sluiceproject/sluice/cmd/internal/testenv/rlstest"
	"github.com/sluiceproject/sluice/internal/testenv/redistest"
)

// gatewayMapper is a file as Envoy Gateway mounts it for PROMETHEUS_MAPPER_YAML.
const gatewayMapper = `mappings:
  - match: "ratelimit.service.rate_limit.*.*.total_hits"
    name: "ratelimit_service_rate_limit_total_hits"
    timer_type: "histogram"
    labels:
      domain: "$1"
      key1: "$2"
  - match: "ratelimit.service.rate_limit.*.*.*.total_hits"
    name: "ratelimit_service_rate_limit_total_hits"
    timer_type: "histogram"
    labels:
      domain: "$1"
      key1: "$2"
      key2: "$3"
  - match: "ratelimit_server.*.response_time"
    name: "ratelimit_service_response_time_seconds"
    timer_type: histogram
    labels:
      grpc_method: "$1"
  - match: "."
    match_type: "regex"
    action: "drop"
    name: "dropped"
`

// startGateway starts a control plane that requires client certificates and sends these rules.
func startGateway(t *testing.T, ca *authority, node string, configs ...types.Resource) (addr string) {
	t.Helper()
	cert, key := ca.issue(t, "envoy-gateway")
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: ca.pool(), ClientAuth: tls.RequireAndVerifyClientCert,
	})))
	snapshots := cache.NewSnapshotCache(false, cache.IDHash{}, nil)
	snapshot, err := cache.NewSnapshot("1", map[resource.Type][]types.Resource{resource.RateLimitConfigType: configs})
	if err != nil {
		t.Fatal(err)
	}
	if err := snapshots.SetSnapshot(t.Context(), node, snapshot); err != nil {
		t.Fatal(err)
	}
	discovery.RegisterAggregatedDiscoveryServiceServer(server, xds.NewServer(context.Background(), snapshots, nil))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(l)
	t.Cleanup(server.Stop)
	return l.Addr().String()
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// The service runs with the environment variables of Envoy Gateway.
func TestEnvoyGateway(t *testing.T) {
	ca := newAuthority(t)
	gateway := startGateway(t, ca, "envoy-ratelimit", &conf.RateLimitConfig{
		Name: "listener", Domain: "listener", Descriptors: []*conf.RateLimitDescriptor{{
			Key: "route", Value: "r1", Descriptors: []*conf.RateLimitDescriptor{{
				Key: "rule-0", RateLimit: &conf.RateLimitPolicy{RequestsPerUnit: 3, Unit: conf.RateLimitUnit_DAY},
			}},
		}},
	})
	cert, key := ca.issue(t, "envoy-ratelimit")
	mapper := filepath.Join(t.TempDir(), "conf.yaml")
	if err := os.WriteFile(mapper, []byte(gatewayMapper), 0o600); err != nil {
		t.Fatal(err)
	}
	p := launch(t,
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+redistest.Start(t).Addr, "RUNTIME_ROOT=/data", "RUNTIME_SUBDIRECTORY=ratelimit",
		"RUNTIME_IGNOREDOTFILES=true", "RUNTIME_WATCH_ROOT=false", "LOG_LEVEL=info", "USE_STATSD=false",
		"CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL="+gateway, "CONFIG_GRPC_XDS_NODE_ID=envoy-ratelimit",
		"GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT="+cert, "GRPC_SERVER_TLS_KEY="+key, "GRPC_SERVER_TLS_CA_CERT="+ca.file,
		"CONFIG_GRPC_XDS_SERVER_USE_TLS=true", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT="+cert, "CONFIG_GRPC_XDS_CLIENT_TLS_KEY="+key,
		"CONFIG_GRPC_XDS_SERVER_TLS_CACERT="+ca.file, "FORCE_START_WITHOUT_INITIAL_CONFIG=true",
		"USE_PROMETHEUS=true", "PROMETHEUS_ADDR=127.0.0.1:0", "PROMETHEUS_MAPPER_YAML="+mapper,
		// The only difference: the control plane has another name in these tests.
		"CONFIG_GRPC_XDS_SERVER_TLS_SAN=envoy-gateway",
	)
	p.says("Successfully loaded new configuration")
	if status, body := p.get("HTTP", "/healthcheck"); status != 200 || body != "OK" {
		t.Errorf("/healthcheck: %d %s", status, body)
	}
	client := pb.NewRateLimitServiceClient(p.dial(grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		RootCAs: ca.pool(), ServerName: "envoy-ratelimit",
	}))))
	for _, want := range []string{
		"OK: OK 3/DAY left 1", "OVER_LIMIT: OVER_LIMIT 3/DAY left 0",
	} {
		if got := rlstest.Answer(t.Context(), client, "listener", "route=r1,rule-0=x hits:2"); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	_, metrics := p.get("Prometheus", "/metrics")
	for _, want := range []string{
		`ratelimit_service_rate_limit_total_hits{domain="listener",key1="route_r1",key2="rule-0"} 4` + "\n",
		`ratelimit_service_response_time_seconds_count{grpc_method="ShouldRateLimit"} 2` + "\n",
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("missing: %sin\n%s", want, metrics)
		}
	}
	if strings.Contains(metrics, "over_limit") {
		t.Errorf("a dropped statistic is exported:\n%s", metrics)
	}
}

// By default nothing listens before the control plane has sent rules. With FORCE_START_WITHOUT_INITIAL_CONFIG and
// HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED the service is unhealthy until then.
func TestRulesFromAControlPlaneThatIsSilent(t *testing.T) {
	environ := []string{"BACKEND_TYPE=memory", "CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL=127.0.0.1:1"}
	waits := launch(t, environ...)
	p := launch(t, append(environ, "FORCE_START_WITHOUT_INITIAL_CONFIG=true", "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED=true")...)
	if got := p.ask("a=1"); got != "rpc error: code = Unknown desc = no rate limit configuration loaded" {
		t.Error(got)
	}
	if got := p.health(); got != "NOT_SERVING" {
		t.Error(got)
	}
	if strings.Contains(waits.logged(), "protocol=gRPC") {
		t.Error("the service listens without rules")
	}
}

// Only clients with a certificate of the CA for the required name are allowed.
func TestClientCertificates(t *testing.T) {
	ca, stranger := newAuthority(t), newAuthority(t)
	cert, key := ca.issue(t, "ratelimit")
	_, environ := ruleDir(t, "  - {key: a, limit: 9}\n")
	p := launch(t, append(environ, "BACKEND_TYPE=memory", "GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT="+cert,
		"GRPC_SERVER_TLS_KEY="+key, "GRPC_CLIENT_TLS_CACERT="+ca.file, "GRPC_CLIENT_TLS_SAN=envoy")...)
	for _, tt := range []struct {
		who  string
		by   *authority
		name string
		ok   bool
	}{{"envoy", ca, "envoy", true}, {"somebody else", ca, "other", false}, {"a stranger", stranger, "envoy", false}, {"nobody", nil, "", false}} {
		c := &tls.Config{RootCAs: ca.pool(), ServerName: "ratelimit"}
		if tt.by != nil {
			cert, key := tt.by.issue(t, tt.name)
			pair, err := tls.LoadX509KeyPair(cert, key)
			if err != nil {
				t.Fatal(err)
			}
			c.Certificates = []tls.Certificate{pair}
		}
		client := pb.NewRateLimitServiceClient(p.dial(grpc.WithTransportCredentials(credentials.NewTLS(c))))
		got := rlstest.Answer(t.Context(), client, "d", "a=1")
		if ok := strings.HasPrefix(got, "OK: OK 9/YEAR"); ok != tt.ok {
			t.Errorf("%s: %s", tt.who, got)
		}
	}
}
