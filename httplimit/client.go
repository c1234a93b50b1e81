package httplimit

import (
	"net/http"
	"net/netip"

	"github.com/sluiceproject/sluice/internal/clientip"
	"github.com/sluiceproject/sluice/rules"
)

// Clients finds whom requests are from, as a set's rules do: by its ClientIP. It is for whoever asks often, such as a
// proxy; others use [RequestOf].
type Clients struct{ ip *clientip.Finder }

// ClientsOf is how the set finds addresses.
func ClientsOf(set *rules.Set) *Clients { return &Clients{clientIP(set)} }

// Addr is the client's address, or the zero Addr if it has none.
func (c *Clients) Addr(r *http.Request) netip.Addr { return c.ip.Addr(r) }

// Trusts reports whether the connection's peer is a trusted proxy. Forwarding headers of other peers are not read.
func (c *Clients) Trusts(r *http.Request) bool { return c.ip.TrustsPeer(r) }

// TrustsAddr reports whether a peer with the address is a trusted proxy.
func (c *Clients) TrustsAddr(a netip.Addr) bool { return c.ip.TrustsAddr(a) }

// Header is the header that trusted peers say it in.
func (c *Clients) Header() string { return c.ip.Header() }
