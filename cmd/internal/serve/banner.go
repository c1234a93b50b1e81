package serve

import (
	"fmt"
	"io"
)

const serveBanner = `Sluice is listening: Envoy's rate limit protocol (gRPC) on %[1]s, check API (HTTP) on %[2]s.
It counts in memory. The only rule is built in: domain "demo", 5 requests per minute for each remote_address.
To see a denial, run one of these commands six times in another terminal:

  grpcurl -plaintext -d '{"domain":"demo","descriptors":[{"entries":[{"key":"remote_address","value":"10.0.0.1"}]}]}' \
    %[1]s envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit
  curl --json '{"domain":"demo","descriptors":[[{"key":"remote_address","value":"10.0.0.1"}]]}' http://%[2]s/v1/check

To see the state of the service: sluice status, sluice top, sluice watch.
To use your own rules, list their files in sluice.yaml and run sluice serve --config sluice.yaml:

  rules: {paths: [rules/]}

ctrl-C stops the service.
`

// WriteBanner writes instructions for trying the service if it has only built-in rules.
func (s *Service) WriteBanner(stdout io.Writer) {
	if s.builtIn && s.server.GRPCAddr() != nil && s.server.HTTPAddr() != nil {
		fmt.Fprintf(stdout, serveBanner, s.server.GRPCAddr(), s.server.HTTPAddr())
	}
}
