package serve

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"strings"

	"github.com/sluiceproject/sluice/cmd/internal/config"
)

const serveBanner = `Sluice is listening: Envoy's rate limit protocol (gRPC) on %[1]s, check API (HTTP) on %[2]s%[3]s.
It counts in %[4]s. The only rule is built in: domain "demo", 5 requests per minute for each remote_address.
To see a denial, run one of these commands six times in another terminal:

  grpcurl %[5]s -d '{"domain":"demo","descriptors":[{"entries":[{"key":"remote_address","value":"10.0.0.1"}]}]}' \
    %[6]s envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit
  curl --json '{"domain":"demo","descriptors":[[{"key":"remote_address","value":"10.0.0.1"}]]}' %[7]s/v1/check

To see the state of the service: sluice status, sluice top, sluice watch.
To use your own rules, list their files in sluice.yaml and run sluice serve --config sluice.yaml:

  rules: {paths: [rules/]}

ctrl-C stops the service.
`

// WriteBanner writes instructions for trying the service if it has only built-in rules.
func (s *Service) WriteBanner(stdout io.Writer) {
	onGRPC, onHTTP := s.server.GRPCAddr(), s.server.HTTPAddr()
	if !s.builtIn || onGRPC == nil || onHTTP == nil {
		return
	}
	cfg := s.snapshot.cfg
	more := ""
	for _, l := range []struct{ what, name string }{{"RESP", respName}, {"gateway", gatewayName}} {
		if addr := s.server.Addr(l.name); addr != nil {
			more += ", " + l.what + " on " + addr.String()
		}
	}
	fmt.Fprintf(stdout, serveBanner, onGRPC, onHTTP, more, s.storeName(),
		grpcurlFlags(&cfg.GRPC.TLS, onGRPC), reachable(onGRPC), curlTarget(&cfg.HTTP.TLS, onHTTP))
}

// storeName describes where the service counts.
func (s *Service) storeName() string {
	switch c := &s.snapshot.cfg.Store; c.Kind {
	case config.Redis:
		u, err := url.Parse(c.URL)
		if err != nil {
			return "Redis"
		}
		return "Redis at " + cmp.Or(u.Host, u.Path) // without the password
	case config.Memcached:
		return "Memcached at " + strings.Join(c.Addresses, ", ")
	}
	return "memory"
}

// reachable returns the address for clients on this host. Clients cannot connect to an unspecified address everywhere.
func reachable(a net.Addr) string {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil || !at.Addr().IsUnspecified() {
		return a.String()
	}
	return fmt.Sprintf("127.0.0.1:%d", at.Port())
}

func grpcurlFlags(t *config.TLS, a net.Addr) string {
	flags := "-plaintext"
	if t.CertFile != "" {
		flags = "-cacert CA_FILE" + clientFlags(t, "-cert", "-key")
	}
	if a.Network() == "unix" {
		flags += " -unix"
	}
	return flags
}

func curlTarget(t *config.TLS, a net.Addr) string {
	scheme, flags := "http://", ""
	if t.CertFile != "" {
		scheme, flags = "https://", "--cacert CA_FILE"+clientFlags(t, "--cert", "--key")+" "
	}
	if a.Network() == "unix" {
		return flags + "--unix-socket " + a.String() + " " + scheme + "localhost"
	}
	return flags + scheme + reachable(a)
}

// clientFlags returns the flags for a client certificate, if the listener requires one.
func clientFlags(t *config.TLS, cert, key string) string {
	if t.ClientCAFile == "" {
		return ""
	}
	return " " + cert + " CERT_FILE " + key + " KEY_FILE"
}
