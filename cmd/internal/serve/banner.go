package serve

import (
	"fmt"
	"io"
)

const serveBanner = `Sluice answers Envoy's rate limit protocol on %[1]s, and checks in JSON on %[2]s.
Counts are in memory. There are no rules yet, but for the domain "demo": 5 a minute for each remote_address.
In another terminal, six times:

  grpcurl -plaintext -d '{"domain":"demo","descriptors":[{"entries":[{"key":"remote_address","value":"10.0.0.1"}]}]}' \
    %[1]s envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit
  curl --json '{"domain":"demo","descriptors":[[{"key":"remote_address","value":"10.0.0.1"}]]}' http://%[2]s/v1/check

See what it does: sluice status, sluice top, sluice watch.
For rules of your own, name their files in sluice.yaml and run: sluice serve --config sluice.yaml

  rules: {paths: [rules/]}

ctrl-C ends it.
`

// WriteBanner tells who has no rules yet how to try it.
func (s *Service) WriteBanner(stdout io.Writer) {
	if s.builtIn && s.server.GRPCAddr() != nil && s.server.HTTPAddr() != nil {
		fmt.Fprintf(stdout, serveBanner, s.server.GRPCAddr(), s.server.HTTPAddr())
	}
}
