// Package domainname checks the domains that certificates are requested for.
package domainname

import (
	"fmt"
	"regexp"
	"strings"
)

var pattern = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// CheckACME returns why an authority would give no certificate for a domain, or nil.
func CheckACME(domain string) error {
	switch {
	case strings.HasPrefix(domain, "*."):
		return fmt.Errorf("%.80q: an authority gives such a certificate only to who can change DNS: write the domains out, or use cert and key", domain)
	case !pattern.MatchString(domain) || len(domain) > 253:
		return fmt.Errorf("%.80q is no domain: write one such as api.example.com, in small letters, and others in Punycode", domain)
	}
	return nil
}
