package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/cmd/internal/edge/domainname"
)

// Domains without ACME certificates are configuration errors. The service rejects them too, because both use
// [domainname.CheckACME].
func TestACMEDomains(t *testing.T) {
	for domain, sound := range map[string]bool{
		"api.example.com": true, "xn--bcher-kva.example": true, "a-b.c-d.example.com": true,
		"*.example.com": false, "example": false, "Api.example.com": false, "api.example.com.": false, "bücher.example": false, "api_1.example.com": false,
		"-a.example.com": false, "a..example.com": false, "192.0.2.1:443": false, "https://api.example.com": false, "api.example.com/": false,
		" api.example.com": false, strings.Repeat("a", 64) + ".example": false, strings.Repeat("a.", 127) + "example": false,
	} {
		if err := domainname.CheckACME(domain); (err == nil) != sound {
			t.Errorf("%q: %v", domain, err)
		}
		text := fmt.Sprintf("listeners: {gateway: {address: ':443', acme: {domains: [api.example.com, %q], cache_dir: acme}}}\n"+
			"gateway: {upstreams: {u: {servers: ['http://127.0.0.1:1']}}, routes: [{upstream: u}]}\n", domain)
		_, err := config.Parse("sluice.yaml", []byte(text), func(string) (string, bool) { return "", false })
		if (err == nil) != sound || err != nil && !strings.Contains(err.Error(), "sluice.yaml:1:56: listeners.gateway.acme.domains: ") {
			t.Errorf("%q: the configuration is %v", domain, err)
		}
	}
}
