package config

import (
	"net/netip"
	"slices"

	"github.com/sluiceproject/sluice/internal/strictyaml"
)

// Gateway is the listener of the proxy, and where it sends requests.
type Gateway struct {
	Address        string
	TLS            TLS
	Certificates   []Pair
	ACME           ACME
	MaxConnections int64
	MaxPerAddress  int64 // connections; 0: a quarter of MaxConnections
	MaxRequests    int64 // in flight; 0: as MaxConnections
	// MaxAddressRequests is that of one client address; 0: a quarter of MaxRequests.
	MaxAddressRequests int64
	MaxBuffered        int64 // bytes of bodies
	MaxHeaderBytes     int64
	MaxStreams         int64
	Upstreams          []Upstream
	Routes             []Route
	Allow, Deny        []netip.Prefix
	AccessLog          AccessLog
}

// AccessLog is a line for each request to the gateway. Without a file there is none.
type AccessLog struct {
	File   string // - is standard output
	Format string
	Query  bool
}

func (g *Gateway) listener() []Setting {
	return slices.Concat(
		[]Setting{
			{"listeners.gateway.address", address(&g.Address), Off, "where requests come that go on to upstreams, see [gateway.md](gateway.md): `host:port`, `unix:///path`, or `off`"},
		},
		tlsSettings("listeners.gateway.tls.", &g.TLS),
		g.certificates(),
		[]Setting{
			{"listeners.gateway.max_connections", number(&g.MaxConnections, 1, 1e6), "10000", "connections at once; more are closed"},
			perAddress("listeners.gateway.", &g.MaxPerAddress),
			{"listeners.gateway.max_header_size", size(&g.MaxHeaderBytes, 4<<10, 1<<20), "64KiB", "of a request's headers"},
			{"listeners.gateway.max_streams", number(&g.MaxStreams, 1, 1e4), "250", "requests at once on a connection of HTTP/2; more are refused"},
		},
	)
}

// Types of settings that have keys of their own.
const (
	upstreamsType = "mapping of upstreams"
	routesType    = "list of routes"
)

func (g *Gateway) settings() []Setting {
	return []Setting{
		{"gateway.upstreams", value{upstreamsType, (*decoder).upstreams, nil}, "", "groups of servers by name; their keys are in [gateway.md](gateway.md)"},
		{"gateway.routes", value{routesType, (*decoder).routes, nil}, "", "which requests go to which upstream; their keys are in [gateway.md](gateway.md)"},
		{"gateway.allow", prefixes(&g.Allow), "", "of clients, as the rules' `client_ip` finds them: all others are refused with 403"},
		{"gateway.deny", prefixes(&g.Deny), "", "of clients that are refused with 403, whatever `allow` says"},
		{"gateway.max_requests", number(&g.MaxRequests, 1, 1e6), "", "requests in flight, WebSockets included; more are answered 503. Without it `listeners.gateway.max_connections`"},
		{"gateway.max_requests_per_address", number(&g.MaxAddressRequests, 1, 1e6), "", "of them, those of one client address (IPv6: /64), as the rules' `client_ip` finds it; more are answered 429. Without it 25 % of `max_requests`"},
		{"gateway.max_buffered_size", size(&g.MaxBuffered, 1<<20, 1<<40), "128MiB", "of all bodies in memory: requests to be queued, and responses that rules with `settle: {json: …}` read. One client address has 25 % of it. At least 16 times `queue.max_item_size`"},
		{"gateway.access_log.file", file(&g.AccessLog.File), "", "where a line is written for each request; a regular file, a FIFO, or `-` for standard output. Opened anew on SIGHUP"},
		{"gateway.access_log.format", word(&g.AccessLog.Format, "json", "combined"), "json", "all there is, which `sluice simulate` reads; or as nginx and Apache write it"},
		{"gateway.access_log.query", boolean(&g.AccessLog.Query), "false", "write queries too; they may hold secrets"},
	}
}

// bufferedItems is how many queue items must have room in memory, so that one of maximum size can be stored at all.
const bufferedItems = 16

func (d *decoder) checkGateway(at func(string) *strictyaml.Node) {
	c := &d.to.Gateway
	d.checkTLS("listeners.gateway.tls", &c.TLS, at)
	d.checkACME(at)
	d.checkRoutes(at)
	if n := at("gateway.access_log"); n != nil && c.AccessLog.File == "" && d.sound("gateway.access_log") {
		d.Fault(n, "gateway.access_log: there is no file: write file: access.log, or - for standard output")
	}
	if least := bufferedItems * d.to.Queue.MaxItem; d.to.Queue.On() && c.Address != Off && c.MaxBuffered < least && d.sound("gateway.max_buffered_size", "queue", "listeners.gateway.address") {
		n := at("gateway.max_buffered_size")
		if n == nil {
			n = at("queue.max_item_size")
		}
		d.Fault(n, "gateway.max_buffered_size: %s is less than %d times queue.max_item_size (%s): one address may take a quarter, "+
			"and an item takes 4 times its size while it is stored: write %s",
			sizeText(c.MaxBuffered), bufferedItems, sizeText(d.to.Queue.MaxItem), sizeText(least))
	}
	section := at("gateway")
	switch {
	case !d.sound("listeners.gateway.address"):
	case c.Address == Off && section != nil:
		d.Fault(section, "gateway: the listener is off: write listeners: {gateway: {address: 127.0.0.1:8000}}, or remove this section")
	case c.Address != Off && len(c.Routes) == 0 && d.sound("gateway.routes"):
		d.Fault(at("listeners.gateway.address"), "listeners.gateway.address: there are no routes, so that every request would be a 404: "+
			"write gateway: {upstreams: {api: {servers: [http://127.0.0.1:9000]}}, routes: [{path: /**, upstream: api}]}")
	}
}
