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
	errMethod = errors.New("its method is no word")
	errTarget = errors.New("its path or query holds blanks or control characters")
	errHost   = errors.New("its host is none")
	errField  = errors.New("a header field is malformed")
)

var heads = sync.Pool{New: func() any { b := make([]byte, 0, 2<<10); return &b }}

// appendHead writes the head of a request that has a body of so many bytes. Whatever could end a line early is an
// error: it may have been put in after the request was parsed.
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

// checkHead is for requests whose head http.Transport or HTTP/2 writes: not all writers are as careful. It returns the length of the
// head in HTTP/1.
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

// isHopByHop reports whether a field belongs to one connection and never crosses a proxy.
func isHopByHop(name string) bool {
	switch name {
	case "Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade", "Http2-Settings":
		return true
	}
	return false
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

// ours reports whether a field is a gateway's word about the caller.
func ours(name string) bool {
	return strings.HasPrefix(name, "X-Forwarded-") || name == "Forwarded" || name == "X-Real-Ip"
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

func sameProtocol(asked string, answer http.Header) bool {
	return strings.EqualFold(asked, upgradeOf(answer))
}
