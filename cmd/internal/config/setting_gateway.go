package config

import (
	"net/netip"

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

var gatewayListener = join(
	[]Setting{
		{
			"listeners.gateway.address", "address", Off,
			"where requests come that go on to upstreams, see [gateway.md](gateway.md): `host:port`, `unix:///path`, or `off`",
			address(func(c *Config) *string { return &c.Gateway.Address }),
		},
	},
	tlsSettings("listeners.gateway.tls.", func(c *Config) *TLS { return &c.Gateway.TLS }),
	gatewayCertificates,
	[]Setting{
		{
			"listeners.gateway.max_connections", "number", "10000",
			"connections at once; more are closed",
			number(func(c *Config) *int64 { return &c.Gateway.MaxConnections }, 1, 1e6),
		},
		perAddress("listeners.gateway.", func(c *Config) *int64 { return &c.Gateway.MaxPerAddress }),
		{
			"listeners.gateway.max_header_size", "size", "64KiB",
			"of a request's headers",
			size(func(c *Config) *int64 { return &c.Gateway.MaxHeaderBytes }, 4<<10, 1<<20),
		},
		{
			"listeners.gateway.max_streams", "number", "250",
			"requests at once on a connection of HTTP/2; more are refused",
			number(func(c *Config) *int64 { return &c.Gateway.MaxStreams }, 1, 1e4),
		},
	},
)

// Types of settings that have keys of their own.
const (
	upstreamsType = "mapping of upstreams"
	routesType    = "list of routes"
)

var gatewaySettings = []Setting{
	{
		"gateway.upstreams", upstreamsType, "",
		"groups of servers by name; their keys are in [gateway.md](gateway.md)",
		(*decoder).upstreams,
	},
	{
		"gateway.routes", routesType, "",
		"which requests go to which upstream; their keys are in [gateway.md](gateway.md)",
		(*decoder).routes,
	},
	{
		"gateway.allow", "list of addresses and prefixes", "",
		"of clients, as the rules' `client_ip` finds them: all others are refused with 403",
		prefixes(func(c *Config) *[]netip.Prefix { return &c.Gateway.Allow }),
	},
	{
		"gateway.deny", "list of addresses and prefixes", "",
		"of clients that are refused with 403, whatever `allow` says",
		prefixes(func(c *Config) *[]netip.Prefix { return &c.Gateway.Deny }),
	},
	{
		"gateway.max_requests", "number", "",
		"requests in flight, WebSockets included; more are answered 503. Without it `listeners.gateway.max_connections`",
		number(func(c *Config) *int64 { return &c.Gateway.MaxRequests }, 1, 1e6),
	},
	{
		"gateway.max_requests_per_address", "number", "",
		"of them, those of one client address (IPv6: /64), as the rules' `client_ip` finds it; more are answered 429. Without it 25 % of `max_requests`",
		number(func(c *Config) *int64 { return &c.Gateway.MaxAddressRequests }, 1, 1e6),
	},
	{
		"gateway.max_buffered_size", "size", "128MiB",
		"of all bodies in memory: requests to be queued, and responses that rules with `settle: {json: …}` read. One client address has 25 % of it. " +
			"At least 16 times `queue.max_item_size`",
		size(func(c *Config) *int64 { return &c.Gateway.MaxBuffered }, 1<<20, 1<<40),
	},
	{
		"gateway.access_log.file", "file", "",
		"where a line is written for each request; a regular file, a FIFO, or `-` for standard output. Opened anew on SIGHUP",
		text(func(c *Config) *string { return &c.Gateway.AccessLog.File }),
	},
	{
		"gateway.access_log.format", "`json`, `combined`", "json",
		"all there is, which `sluice simulate` reads; or as nginx and Apache write it",
		word(func(c *Config) *string { return &c.Gateway.AccessLog.Format }, "json", "combined"),
	},
	{
		"gateway.access_log.query", "boolean", "false",
		"write queries too; they may hold secrets",
		boolean(func(c *Config) *bool { return &c.Gateway.AccessLog.Query }),
	},
}

// bufferedItems is how many queue items must have room in memory, so that one of maximum size can be stored at all.
const bufferedItems = 16

func (d *decoder) checkGateway(at func(string) *strictyaml.Node) {
	c := &d.to.Gateway
	d.checkTLS("listeners.gateway.tls", &c.TLS, at)
	d.checkACME(at)
	d.checkRoutes()
	if n := at("gateway.access_log"); n != nil && c.AccessLog.File == "" {
		d.Fault(n, "gateway.access_log: there is no file: write file: access.log, or - for standard output")
	}
	if least := bufferedItems * d.to.Queue.MaxItem; d.to.Queue.On() && c.Address != Off && c.MaxBuffered < least {
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
	case c.Address == Off && section != nil:
		d.Fault(section, "gateway: the listener is off: write listeners: {gateway: {address: 127.0.0.1:8000}}, or remove this section")
	case c.Address != Off && len(c.Routes) == 0:
		d.Fault(at("listeners.gateway.address"), "listeners.gateway.address: there are no routes, so that every request would be a 404: "+
			"write gateway: {upstreams: {api: {servers: [http://127.0.0.1:9000]}}, routes: [{path: /**, upstream: api}]}")
	}
}
