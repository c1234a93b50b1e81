package config

import (
	"net/netip"
	"slices"

	"github.com/sluiceproject/sluice/internal/strictyaml"
)

// Gateway is the reverse proxy: its listener, routes and upstreams.
type Gateway struct {
	Address                  string
	TLS                      TLS
	Certificates             []KeyPair
	ACME                     ACME
	MaxConnections           int64
	MaxConnectionsPerAddress int64 // 0: 25 % of MaxConnections
	MaxRequests              int64 // in flight; 0: MaxConnections
	// MaxRequestsPerAddress is the maximum in flight per client address; 0: 25 % of MaxRequests.
	MaxRequestsPerAddress int64
	MaxBufferedSize       int64 // total bytes of bodies in memory
	MaxHeaderSize         int64
	MaxStreams            int64
	Upstreams             []Upstream
	Routes                []Route
	AllowedIPs, DeniedIPs []netip.Prefix
	AccessLog             AccessLog
}

// AccessLog is the access log of the gateway, one line per request. Without a file it is disabled.
type AccessLog struct {
	File         string // "-": standard output
	Format       string
	IncludeQuery bool
}

func (g *Gateway) listener() []Setting {
	return slices.Concat(
		[]Setting{
			{"listeners.gateway.address", address(&g.Address), Off, "address of the gateway, a reverse proxy, see [gateway.md](gateway.md): `host:port`, `unix:///path`, or `off`"},
		},
		tlsSettings("listeners.gateway.tls.", &g.TLS),
		g.certificates(),
		[]Setting{
			{"listeners.gateway.max_connections", number(&g.MaxConnections, 1, 1e6), "10000", "maximum open connections; further ones are closed"},
			perAddress("listeners.gateway.", &g.MaxConnectionsPerAddress),
			{"listeners.gateway.max_header_size", size(&g.MaxHeaderSize, 4<<10, 1<<20), "64KiB", "maximum size of a request's headers; larger ones get 431"},
			{"listeners.gateway.max_streams", number(&g.MaxStreams, 1, 1e4), "250", "maximum concurrent requests per HTTP/2 connection; further ones are reset with `REFUSED_STREAM`"},
		},
	)
}

// Types of settings whose entries have their own keys.
const (
	upstreamsType = "mapping of upstreams"
	routesType    = "list of routes"
)

func (g *Gateway) settings() []Setting {
	return []Setting{
		{"gateway.upstreams", value{upstreamsType, (*decoder).upstreams, nil}, "", "groups of servers by name; their keys are in [upstreams.md](upstreams.md#reference)"},
		{"gateway.routes", value{routesType, (*decoder).routes, nil}, "", "routes of requests to upstreams; their keys are in [gateway.md](gateway.md#route-keys)"},
		{"gateway.allowed_ips", prefixes(&g.AllowedIPs), "", "allowed client addresses, as determined by the rules' `client_ip`; others are rejected with 403. Default: all"},
		{"gateway.denied_ips", prefixes(&g.DeniedIPs), "", "client addresses to reject with 403, even if they are in `allowed_ips`"},
		{"gateway.max_requests", number(&g.MaxRequests, 1, 1e6), "", "maximum requests in flight, WebSockets included; further ones get 503. Default: `listeners.gateway.max_connections`"},
		{"gateway.max_requests_per_address", number(&g.MaxRequestsPerAddress, 1, 1e6), "", "maximum requests in flight per client address (IPv6: per /64), as determined by the rules' `client_ip`; further ones get 429. Default: 25 % of `max_requests`"},
		{"gateway.max_buffered_size", size(&g.MaxBufferedSize, 1<<20, 1<<40), "128MiB", "maximum total size of bodies in memory: requests to be queued, and responses that rules with `actual_cost: {json: …}` read. One client address can use 25 % of it. With a queue, at least 16 × `queue.max_item_size`"},
		{"gateway.access_log.file", file(&g.AccessLog.File), "", "file of the access log, one line per request: a regular file, a FIFO, or `-` for standard output. Reopened on SIGHUP"},
		{"gateway.access_log.format", word(&g.AccessLog.Format, "json", "combined"), "json", "format of the lines: `json` with all fields, which `sluice simulate` reads, or `combined` as nginx and Apache write it"},
		{"gateway.access_log.include_query", boolean(&g.AccessLog.IncludeQuery), "false", "log query strings too; they may contain secrets"},
	}
}

// bufferedItems is the minimum ratio of MaxBufferedSize to the maximum item size. One address can use 25 % of the buffers, and
// an item needs 4 × its size while it is stored, so below it an item of maximum size could never be stored.
const bufferedItems = 16

func (d *decoder) checkGateway(at func(string) *strictyaml.Node) {
	c := &d.to.Gateway
	d.checkTLS("listeners.gateway.tls", &c.TLS, at)
	d.checkACME(at)
	d.checkRoutes(at)
	if n := at("gateway.access_log"); n != nil && c.AccessLog.File == "" && d.sound("gateway.access_log") {
		d.Fault(n, "gateway.access_log: there is no file: write file: access.log, or - for standard output")
	}
	if least := bufferedItems * d.to.Queue.MaxItemSize; d.to.Queue.On() && c.Address != Off && c.MaxBufferedSize < least && d.sound("gateway.max_buffered_size", "queue", "listeners.gateway.address") {
		n := at("gateway.max_buffered_size")
		if n == nil {
			n = at("queue.max_item_size")
		}
		d.Fault(n, "gateway.max_buffered_size: %s is less than %d times queue.max_item_size (%s): one client address can use 25 %%, "+
			"and an item needs 4 × its size while it is stored: write %s",
			sizeText(c.MaxBufferedSize), bufferedItems, sizeText(d.to.Queue.MaxItemSize), sizeText(least))
	}
	section := at("gateway")
	switch {
	case !d.sound("listeners.gateway.address"):
	case c.Address == Off && section != nil:
		d.Fault(section, "gateway: the listener is off: write listeners: {gateway: {address: 127.0.0.1:8000}}, or remove this section")
	case c.Address != Off && len(c.Routes) == 0 && d.sound("gateway.routes"):
		d.Fault(at("listeners.gateway.address"), "listeners.gateway.address: there are no routes, and every request would get 404: "+
			"write gateway: {upstreams: {api: {servers: [http://127.0.0.1:9000]}}, routes: [{path: /**, upstream: api}]}")
	}
}
