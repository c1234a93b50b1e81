package logs

import (
	"crypto/sha256"
	"net/http"
	"net/netip"
	"strings"

	"github.com/sluiceproject/sluice/internal/clientip"
)

// HostAddr returns the synthetic address of a client that a log names by host: 02 and 56 bits of a digest of its name, in
// 200::/8, which is not assigned. The bits are in the first 64, so that a rule per IP counts each host separately, as
// it counts IPv6 networks. Names are equal without regard to case.
func HostAddr(name string) netip.Addr {
	sum := sha256.Sum256([]byte(strings.ToLower(name)))
	a := [16]byte{0: 0x02}
	copy(a[1:8], sum[:7])
	return netip.AddrFrom16(a)
}

// hostNames contains the names of synthetic addresses, as many as fit, to print them.
type hostNames map[netip.Addr]string

const maxHostNames = 1 << 14

func (h hostNames) add(a netip.Addr, name string) {
	if _, known := h[a]; !known && len(h) < maxHostNames {
		h[a] = strings.Clone(name)
	}
}

// maxHost is the maximum length of a host name in bytes; longer names are truncated.
const maxHost = 255

// setClient sets the client from an address with or without a port, a host name, or a list of addresses, of which
// the last counts: the nearest proxy appended it.
func (e *Entry) setClient(v string) {
	if i := strings.LastIndexByte(v, ','); i >= 0 {
		v = strings.TrimLeft(v[i+1:], " ")
	}
	if v == "" || v == "-" {
		return
	}
	if a, ok := parseAddr(v); ok {
		e.Record.Client, e.ClientName = a, ""
		return
	}
	e.ClientName = v[:min(len(v), maxHost)]
	e.Record.Client = HostAddr(e.ClientName)
}

// parseAddr parses an address, with or without a port, a zone or brackets.
func parseAddr(v string) (netip.Addr, bool) {
	if a, err := netip.ParseAddr(v); err == nil {
		return a.WithZone("").Unmap(), true
	}
	if p, err := netip.ParseAddrPort(v); err == nil {
		return p.Addr().WithZone("").Unmap(), true
	}
	if inner, ok := strings.CutPrefix(v, "["); ok {
		if a, err := netip.ParseAddr(strings.TrimSuffix(inner, "]")); err == nil {
			return a.WithZone("").Unmap(), true
		}
	}
	return netip.Addr{}, false
}

// proxies finds the clients of requests that trusted proxies forwarded.
type proxies struct {
	finder  *clientip.Finder
	request http.Request
	lines   [1]string
	index   fieldIndex
}

func newProxies(trusted []netip.Prefix) *proxies {
	if len(trusted) == 0 {
		return nil
	}
	p := &proxies{finder: clientip.New(clientip.Config{Proxies: trusted})}
	p.request.Header = http.Header{clientip.ForwardedFor: p.lines[:]}
	return p
}

// resolve replaces the address of a trusted proxy by that of its client.
func (p *proxies) resolve(e *Entry) {
	if p == nil || !p.finder.TrustsAddr(e.Record.Client) || !e.Record.Client.IsValid() {
		return
	}
	list, ok := header(p.index.of(e), clientip.ForwardedFor)
	if !ok {
		return
	}
	p.lines[0], p.request.RemoteAddr = list, e.Record.Client.String()
	if client := p.finder.Addr(&p.request); client != e.Record.Client {
		e.Record.Client, e.forwarded = client, true
	}
}
