// Package domainname checks the domains that certificates are requested for.
package domainname

import (
	"fmt"
	"regexp"
	"strings"
)

var pattern = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// CheckACME returns an error if no CA issues a certificate for the domain by TLS-ALPN-01 or HTTP-01.
func CheckACME(domain string) error {
	switch {
	case strings.HasPrefix(domain, "*."):
		return fmt.Errorf("%.80q: wildcard certificates need a DNS challenge, which is not supported: list the domains, or use cert_file and key_file", domain)
	case !pattern.MatchString(domain) || len(domain) > 253:
		return fmt.Errorf("%.80q is not a domain: write one such as api.example.com, in lower case, and non-ASCII names in Punycode", domain)
	}
	return nil
}
