package upstream

import (
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// isHopByHop says whether a field belongs to one connection and never crosses a proxy.
func isHopByHop(name string) bool {
	switch name {
	case "Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade", "Http2-Settings":
		return true
	}
	return false
}

// StripHopByHop removes the fields that belong to one connection: those that always do, and those that Connection
// names. Who a request is forwarded for cannot be removed that way: a caller must not have the gateway's own words
// dropped.
func StripHopByHop(h http.Header) {
	for _, name := range connectionNames(h) {
		delete(h, name)
	}
	for name := range h {
		if isHopByHop(name) {
			delete(h, name)
		}
	}
}

// stripTrailers removes the fields that belong to one connection, and those that say how long a message is or how to read it:
// by the time that trailers come, that has been decided.
func stripTrailers(h http.Header) {
	for name := range h {
		if isHopByHop(name) || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidTrailerHeader(name) {
			delete(h, name)
		}
	}
}

// connectionNames are the fields that Connection names and that may be dropped for it, in canonical form.
func connectionNames(h http.Header) (names []string) {
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			name = textproto.CanonicalMIMEHeaderKey(textproto.TrimString(name))
			if name != "" && !ours(name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// ours says whether a field is a gateway's word about the caller.
func ours(name string) bool {
	return strings.HasPrefix(name, "X-Forwarded-") || name == "Forwarded" || name == "X-Real-Ip"
}

// upgradeOf is what a header asks or agrees to turn the connection into, "" if nothing. HTTP/2 in plain text is not on
// offer: it would be a way around everything that looks at requests.
func upgradeOf(h http.Header) string {
	if len(h["Upgrade"]) == 0 || !httpguts.HeaderValuesContainsToken(h["Connection"], "Upgrade") {
		return ""
	}
	u := h.Get("Upgrade")
	if len(h["Upgrade"]) > 1 || !httpguts.ValidHeaderFieldValue(u) || strings.EqualFold(u, "h2c") {
		return ""
	}
	return u
}

// forwarded is the header that the server gets.
func forwarded(r *http.Request, upgrade string) http.Header {
	h := make(http.Header, len(r.Header)+2)
	for name, values := range r.Header {
		if !isHopByHop(name) {
			h[name] = trimmed(values)
		}
	}
	for _, name := range connectionNames(r.Header) {
		delete(h, name)
	}
	if httpguts.HeaderValuesContainsToken(r.Header["Te"], "trailers") {
		h["Te"] = []string{"trailers"}
	}
	if upgrade != "" {
		h["Connection"], h["Upgrade"] = []string{"Upgrade"}, []string{upgrade}
	}
	if _, ok := h["User-Agent"]; !ok {
		h["User-Agent"] = []string{""} // else Go's client would give its own
	}
	return h
}

// trimmed returns the values without blanks around them, for which servers of HTTP/2 reset a stream.
func trimmed(values []string) []string {
	for i, v := range values {
		if t := strings.Trim(v, " \t"); len(t) != len(v) {
			values = slices.Clone(values)
			for ; i < len(values); i++ {
				values[i] = strings.Trim(values[i], " \t")
			}
			break
		}
	}
	return values
}

// merge puts an upstream's header into an answer's.
func (g *Group) merge(answer, upstream http.Header) {
	if g.cfg.Merge != nil {
		g.cfg.Merge(answer, upstream)
		return
	}
	for name, values := range upstream {
		if had := answer[name]; had != nil {
			values = append(had[:len(had):len(had)], values...)
		}
		answer[name] = values
	}
}
