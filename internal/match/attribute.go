package match

import "slices"

// MaxAttributeBytes is the maximum length of an attribute's value.
const MaxAttributeBytes = 8 << 10

// credentialHeaders are in canonical form.
var credentialHeaders = []string{
	"Authorization", "Proxy-Authorization", "Cookie", "X-Api-Key", "Api-Key", "X-Auth-Token", "X-Access-Token", "X-Csrf-Token", "X-Xsrf-Token",
}

// CredentialHeaders returns the names of headers that hold credentials, in canonical form. Their values are secret: they
// enter keys as digests, are not shown, and are not stored with queued requests.
func CredentialHeaders() []string { return slices.Clone(credentialHeaders) }

// IsCredentialHeader reports whether a header, by its canonical name, holds credentials.
func IsCredentialHeader(name string) bool { return slices.Contains(credentialHeaders, name) }
