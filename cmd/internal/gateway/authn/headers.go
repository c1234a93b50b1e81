package authn

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// Headers are the identity headers for upstreams.
type Headers struct{ all []identityHeader }

// identityHeader is a header and its value: an attribute or a claim.
type identityHeader struct {
	header, name string
	claim        bool
}

// NewHeaders returns identity headers. Values maps their names to user, plan or another attribute, or claim:NAME.
func NewHeaders(values map[string]string) (*Headers, error) {
	var h Headers
	for _, header := range slices.Sorted(maps.Keys(values)) {
		if !httpguts.ValidHeaderFieldName(header) {
			return nil, fmt.Errorf("%q is not a header name: write one such as X-User", header)
		}
		canonical := http.CanonicalHeaderKey(header)
		if slices.Contains(notOurs, canonical) {
			return nil, fmt.Errorf("%s is reserved: write a name such as X-User", canonical)
		}
		if slices.ContainsFunc(h.all, func(t identityHeader) bool { return folded(t.header) == folded(canonical) }) {
			return nil, fmt.Errorf("%s is listed twice, in different spellings: upstreams may treat both as the same header", canonical)
		}
		name, claim := strings.CutPrefix(values[header], "claim:")
		if name == "" {
			return nil, fmt.Errorf("%s: write its value: user, plan, another attribute, or claim:NAME", canonical)
		}
		h.all = append(h.all, identityHeader{canonical, name, claim})
	}
	return &h, nil
}

// notOurs are headers that HTTP or the gateway uses.
var notOurs = []string{
	"Authorization", "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Cookie", "Expect", "Forwarded", "Host",
	"Keep-Alive", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "X-Forwarded-For", "X-Forwarded-Host",
	"X-Forwarded-Proto",
}

// Clean removes the identity headers in all spellings that some upstreams treat as equal, from headers or trailers.
func (h *Headers) Clean(from http.Header) {
	if h == nil {
		return
	}
	for i := range h.all {
		remove(from, h.all[i].header)
	}
}

// set sets the identity headers. Values that would be parsed as another value are omitted.
func (h *Headers) set(to http.Header, id *Identity) {
	if h == nil {
		return
	}
	for _, t := range h.all {
		from := id.Attributes
		if t.claim {
			from = id.Claims
		}
		if v := from[t.name]; v != "" && sendable(v) {
			to[t.header] = []string{v}
		}
	}
}

// sendable reports whether a header with this value is parsed as this value.
func sendable(v string) bool {
	return httpguts.ValidHeaderFieldValue(v) && strings.Trim(v, " \t") == v
}

// remove deletes a header in all its spellings: CGI programs and others treat X_User and X.User as X-User.
func remove(h http.Header, name string) {
	delete(h, name)
	want := folded(name)
	for other := range h {
		if len(other) == len(name) && folded(other) == want {
			delete(h, other)
		}
	}
}

// folded returns a header name as the most lenient programs read it: in lower case, with all characters except letters and digits
// replaced by hyphens.
func folded(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		}
		return '-'
	}, name)
}
