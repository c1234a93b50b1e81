package upstream

import (
	"errors"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/net/http/httpguts"
)

var (
	errMethod = errors.New("malformed method")
	errTarget = errors.New("path or query contains blanks or control characters")
	errHost   = errors.New("malformed host")
	errField  = errors.New("malformed header field")
)

var heads = sync.Pool{New: func() any { b := make([]byte, 0, 2<<10); return &b }}

// appendHead appends the head of a request with a body of the given length. It returns an error for characters that could end
// a line, because they may have been added after the request was parsed.
func appendHead(b []byte, r *http.Request, host string, length int) ([]byte, error) {
	if !httpguts.ValidHeaderFieldName(r.Method) {
		return b, errMethod
	}
	if r.Host != "" {
		host = r.Host
	}
	if !httpguts.ValidHostHeader(host) {
		return b, errHost
	}
	b = append(b, r.Method...)
	b = append(b, ' ')
	from := len(b)
	switch path := r.URL.EscapedPath(); {
	case path == "":
		b = append(b, '/')
	case path[0] != '/' && path != "*":
		return b, errTarget
	default:
		b = append(b, path...)
	}
	if r.URL.RawQuery != "" || r.URL.ForceQuery {
		b = append(b, '?')
		b = append(b, r.URL.RawQuery...)
	}
	for _, c := range b[from:] {
		if c <= ' ' || c == 0x7f {
			return b, errTarget
		}
	}
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, host...)
	b = append(b, "\r\n"...)
	b, err := appendFields(b, r.Header)
	if err != nil {
		return b, err
	}
	if length > 0 || r.Method == http.MethodPost || r.Method == http.MethodPut || r.Method == http.MethodPatch {
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, int64(length), 10)
		b = append(b, "\r\n"...)
	}
	return append(b, "\r\n"...), nil
}

func appendFields(b []byte, h http.Header) ([]byte, error) {
	var dropped []string
	if len(h["Connection"]) > 0 {
		dropped = connectionNames(h)
	}
	for name, values := range h {
		switch name {
		case "Host", "Content-Length":
			continue
		case "Te":
			if httpguts.HeaderValuesContainsToken(values, "trailers") {
				b = append(b, "Te: trailers\r\n"...)
			}
			continue
		}
		if isHopByHop(name) || (dropped != nil && slices.Contains(dropped, name)) {
			continue
		}
		if !httpguts.ValidHeaderFieldName(name) {
			return b, errField
		}
		for _, v := range values {
			if !httpguts.ValidHeaderFieldValue(v) {
				return b, errField
			}
			b = append(b, name...)
			b = append(b, ": "...)
			b = append(b, strings.Trim(v, " \t")...)
			b = append(b, "\r\n"...)
		}
	}
	return b, nil
}

// checkHead validates the head of a request that http.Transport or the HTTP/2 client writes, which are less strict. It returns
// the length of the head in HTTP/1.
func checkHead(r *http.Request) (length int, err error) {
	for name := range r.Trailer {
		if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidTrailerHeader(name) {
			return 0, errField
		}
	}
	buf := heads.Get().(*[]byte)
	defer heads.Put(buf)
	head, err := appendHead((*buf)[:0], r, "localhost", 0)
	return len(head), err
}

// forwarded returns the header that is sent to the server.
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
		h["User-Agent"] = []string{""} // otherwise Go's client would set its own
	}
	return h
}

// trimmed returns the values without surrounding blanks, for which HTTP/2 servers reset a stream.
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

// merge adds an upstream's header to the header of the response.
func (g *Group) merge(response, upstream http.Header) {
	if g.cfg.Merge != nil {
		g.cfg.Merge(response, upstream)
		return
	}
	for name, values := range upstream {
		if had := response[name]; had != nil {
			values = append(had[:len(had):len(had)], values...)
		}
		response[name] = values
	}
}

// StripHopByHop removes hop-by-hop fields: those that always are, and those that Connection lists. Forwarding headers are not
// removed even if Connection lists them, because a caller must not be able to remove headers that the gateway sets.
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

// isHopByHop reports whether a field is always hop-by-hop.
func isHopByHop(name string) bool {
	switch name {
	case "Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade", "Http2-Settings":
		return true
	}
	return false
}

// connectionNames returns the fields that Connection lists and that may be removed, in canonical form.
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

// ours reports whether a field is a forwarding header, which a gateway sets.
func ours(name string) bool {
	return strings.HasPrefix(name, "X-Forwarded-") || name == "Forwarded" || name == "X-Real-Ip"
}

// stripTrailers removes hop-by-hop fields and fields about the length or encoding of a message, which are invalid in trailers.
func stripTrailers(h http.Header) {
	for name := range h {
		if isHopByHop(name) || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidTrailerHeader(name) {
			delete(h, name)
		}
	}
}

// upgradeOf returns the protocol to which a request or response upgrades the connection, or "". An upgrade to HTTP/2 (h2c) is
// not supported, because requests on the upgraded connection would bypass all checks.
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

func sameProtocol(requested string, response http.Header) bool {
	return strings.EqualFold(requested, upgradeOf(response))
}
