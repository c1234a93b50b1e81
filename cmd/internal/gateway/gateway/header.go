package gateway

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/queue"
	"github.com/sluiceproject/sluice/internal/clientip"
)

// RequestID is the header with the ID of a request.
const RequestID = "X-Request-Id"

const (
	forwardedFor  = "X-Forwarded-For"
	forwardedHost = "X-Forwarded-Host"
	forwarded     = "Forwarded"
	forwardedAs   = "X-Forwarded-Proto"
)

// cleanHeader removes headers that are not for the upstream before any other step reads the header, so that rules see what
// the upstream will see. Forwarding headers are kept only from trusted peers. Fields listed in Connection are kept until the
// request is forwarded, and so is the list, because a client could otherwise hide a field that identifies it. See
// [RequestContext.dropNamed].
func cleanHeader(r *http.Request, c *clientip.Finder, trusted bool) {
	h := r.Header
	upgrade := isWebSocket(h) && r.ContentLength == 0
	trailers := hasToken(h["Te"], "trailers")
	named := namedByConnection(h)
	for name := range h {
		if isHopByHop(name) || !trusted && (isSpoofable(name) || name == c.Header()) {
			delete(h, name)
		}
	}
	if len(named) > 0 {
		h["Connection"] = named
	}
	if upgrade {
		h["Connection"], h["Upgrade"] = append(named, connectionUpgrade...), upgradeWebSocket
	}
	if trailers {
		h["Te"] = teTrailers
	}
}

// namedByConnection returns the fields of the header that Connection lists, except those that are always hop-by-hop.
func namedByConnection(h http.Header) (names []string) {
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			name = http.CanonicalHeaderKey(strings.Trim(name, " \t"))
			if _, there := h[name]; there && !isHopByHop(name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// isWebSocket reports whether the request is an upgrade to WebSocket. Other upgrades are not forwarded: requests after an
// upgrade to HTTP/2 would bypass all limits.
func isWebSocket(h http.Header) bool {
	return len(h["Upgrade"]) == 1 && strings.EqualFold(h["Upgrade"][0], "websocket") && hasToken(h["Connection"], "upgrade")
}

func hasToken(lines []string, token string) bool {
	for _, line := range lines {
		for text := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.Trim(text, " \t"), token) {
				return true
			}
		}
	}
	return false
}

// isHopByHop reports whether a header is hop-by-hop, or has a name that applications which map headers to variables treat as
// equal to another: X_User or X.User for X-User.
func isHopByHop(name string) bool {
	switch name {
	case "Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade", "Http2-Settings":
		return true
	}
	for i := range len(name) {
		if c := name[i]; (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && c != '-' {
			return true
		}
	}
	return false
}

// isSpoofable reports whether some applications take the client's address or the path from the header, so that they would see
// another request than the rules.
func isSpoofable(name string) bool {
	switch name {
	case forwarded, "X-Real-Ip", "X-Client-Ip", "X-Cluster-Client-Ip", "True-Client-Ip", "X-Rewrite-Url", "X-Host",
		"X-Forwarded", "Forwarded-For", "X-Originating-Ip", "X-Remote-Ip", "X-Remote-Addr", "Remote-Addr", "Client-Ip", "X-Proxyuser-Ip",
		"Proxy-Client-Ip", "Wl-Proxy-Client-Ip", "Cf-Connecting-Ip", "Cf-Connecting-Ipv6", "Fastly-Client-Ip", "Fly-Client-Ip",
		"X-Azure-Clientip", "X-Azure-Socketip", "X-Appengine-User-Ip", "X-Envoy-External-Address":
		return true
	}
	return strings.HasPrefix(name, "X-Forwarded-") || strings.HasPrefix(name, "X-Original-")
}

var (
	connectionUpgrade = []string{"Upgrade"}
	upgradeWebSocket  = []string{"websocket"}
	teTrailers        = []string{"trailers"}
)

// dropNamed removes the fields that Connection lists, except those that the gateway reads or sets: otherwise the upstream
// could see another identity than the one that was authenticated and limited.
func (x *RequestContext) dropNamed(h http.Header) {
	named := h["Connection"]
	if len(named) == 0 {
		return
	}
	delete(h, "Connection")
	for _, name := range named {
		switch {
		case name == "Upgrade":
			h["Connection"] = connectionUpgrade
		case !isIdentity(name) && !x.set.ReadsHeader(name) && !x.Route.Authn.Reads(name):
			delete(h, name)
		}
	}
}

// isIdentity reports whether the gateway itself uses a field to identify a request, its sender or its content, independently
// of the rules.
func isIdentity(name string) bool {
	switch name {
	case RequestID, queue.IdempotencyHeader, queue.AttemptHeader, "Host", "Content-Length", "Content-Type", "Content-Encoding":
		return true
	}
	return isSpoofable(name) || slices.Contains(credentials, name)
}

// setForwarded sets the forwarding headers for the upstream. It runs after the rules, which read the received headers.
func (x *RequestContext) setForwarded(r *http.Request) {
	h := r.Header
	peer := peerOf(r.RemoteAddr)
	proto := protoHTTP
	if r.TLS != nil {
		proto = protoHTTPS
	}
	if prior := h[forwardedFor]; len(prior) > 0 {
		h[forwardedFor] = x.singleLine(lineFor, strings.Join(prior, ", ")+", "+peer)
	} else {
		h[forwardedFor] = x.singleLine(lineFor, peer)
	}
	if prior := h[forwarded]; len(prior) > 0 { // only if a proxy in front uses it
		node := peer
		if strings.Contains(peer, ":") {
			node = `"[` + peer + `]"`
		}
		h[forwarded] = []string{strings.Join(prior, ", ") + ", for=" + node + ";proto=" + proto[0]}
	}
	if !x.trusted || len(h[forwardedAs]) != 1 {
		h[forwardedAs] = proto
	}
	if !x.trusted || len(h[forwardedHost]) != 1 {
		h[forwardedHost] = x.singleLine(lineHost, r.Host)
	}
}

var protoHTTP, protoHTTPS = []string{"http"}, []string{"https"}

// peerOf returns the address of the peer, or "unknown" (RFC 7239) for a Unix socket.
func peerOf(remote string) string {
	if a, err := netip.ParseAddrPort(remote); err == nil {
		if a.Addr().Is4() { // already canonical
			return remote[:strings.LastIndexByte(remote, ':')]
		}
		return a.Addr().Unmap().WithZone("").String()
	}
	return "unknown"
}
