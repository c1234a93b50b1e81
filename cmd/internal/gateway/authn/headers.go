package authn

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// Headers tell upstreams who a request is from.
type Headers struct{ all []identityHeader }

// identityHeader is one header, and what it tells: an attribute, or a claim.
type identityHeader struct {
	header, name string
	claim        bool
}

// NewHeaders makes headers from their names and what they tell: user, plan or another attribute, or claim:NAME.
func NewHeaders(tell map[string]string) (*Headers, error) {
	var h Headers
	for _, header := range slices.Sorted(maps.Keys(tell)) {
		if !httpguts.ValidHeaderFieldName(header) {
			return nil, fmt.Errorf("%q is no name of a header: write one such as X-User", header)
		}
		canonical := http.CanonicalHeaderKey(header)
		if slices.Contains(notOurs, canonical) {
			return nil, fmt.Errorf("%s has a meaning of its own: write a name such as X-User", canonical)
		}
		if slices.ContainsFunc(h.all, func(t identityHeader) bool { return folded(t.header) == folded(canonical) }) {
			return nil, fmt.Errorf("%s is there twice, in another spelling: upstreams may take both for the same", canonical)
		}
		name, claim := strings.CutPrefix(tell[header], "claim:")
		if name == "" {
			return nil, fmt.Errorf("%s: write what it tells: user, plan, another attribute, or claim:NAME", canonical)
		}
		h.all = append(h.all, identityHeader{canonical, name, claim})
	}
	return &h, nil
}

// notOurs are headers that HTTP itself or the gateway works with.
var notOurs = []string{
	"Authorization", "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Cookie", "Expect", "Forwarded", "Host",
	"Keep-Alive", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "X-Forwarded-For", "X-Forwarded-Host",
	"X-Forwarded-Proto",
}

// Clean removes these headers, in all spellings that some upstreams take for the same. It is for trailers too.
func (h *Headers) Clean(from http.Header) {
	if h == nil {
		return
	}
	for i := range h.all {
		remove(from, h.all[i].header)
	}
}

// set tells who it is. A value that would be another one once it is read as a header is left out.
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

// sendable tells whether a header with this value is read as this value.
func sendable(v string) bool {
	return httpguts.ValidHeaderFieldValue(v) && strings.Trim(v, " \t") == v
}

// remove deletes a header in all its spellings: programs behind CGI and the like take X_User and X.User for X-User.
func remove(h http.Header, name string) {
	delete(h, name)
	want := folded(name)
	for other := range h {
		if len(other) == len(name) && folded(other) == want {
			delete(h, other)
		}
	}
}

// folded is a header's name as the most lenient programs read it: letters in lower case, and all else but digits a
// hyphen.
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
