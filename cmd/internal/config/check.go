package config

import (
	"cmp"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/sluiceproject/sluice/internal/strictyaml"
)

// check reports settings that are valid alone but not together.
func (d *decoder) check(root *strictyaml.Node) {
	c := d.to
	at := func(name string) *strictyaml.Node { return find(root, name) }
	d.checkTLS("listeners.grpc.tls", &c.GRPC.TLS, at)
	d.checkTLS("listeners.http.tls", &c.HTTP.TLS, at)
	d.checkCollector("tracing", &c.Tracing.Collector, at)
	d.checkCollector("metrics.otlp", &c.Metrics.OTLP.Collector, at)
	d.checkTLS("listeners.admin.tls", &c.Admin.TLS, at)
	d.checkAdmin(at)
	d.checkRESP(at)
	d.checkGateway(at)
	d.checkQueue(at)
	d.checkAuthentication(at)
	d.checkShares(at)
	if d.sound("listeners") && c.GRPC.Address == Off && c.HTTP.Address == Off && c.RESP.Address == Off && c.Gateway.Address == Off {
		d.Fault(at("listeners"), "listeners: all listeners are off: set the address of one")
	}
	d.checkStore(at)
	switch n := at("metrics.http_listener"); {
	case !c.Metrics.HTTPListener || !d.sound("metrics.http_listener", "metrics.enabled"):
	case !c.Metrics.Enabled:
		d.Fault(n, "metrics.http_listener: metrics are disabled: remove it, or remove enabled: false")
	case c.HTTP.Address == Off && d.sound("listeners.http.address"):
		d.Fault(n, "metrics.http_listener: listeners.http is off: set its address, or remove http_listener")
	}
	if n := at("logging.secret_file"); n != nil && c.Logging.Keys != "masked" && d.sound("logging.keys") {
		d.Fault(n, "logging.secret_file: is for keys: masked, and this is %s: remove it, or change keys", c.Logging.Keys)
	}
	if n := at("rls.client_domains"); n != nil && c.GRPC.TLS.ClientCAFile == "" && d.sound("listeners.grpc.tls") {
		d.Fault(n, "rls.client_domains: client names are trusted only in verified certificates: set listeners.grpc.tls.client_ca_file")
	}
}

func (d *decoder) checkStore(at func(string) *strictyaml.Node) {
	c := d.to
	if !d.sound("store.kind") {
		return
	}
	switch {
	case !d.sound("store.url"):
	case c.Store.Kind == Redis && c.Store.URL == "":
		d.Fault(at("store.kind"), "store.kind: redis needs a url: write url: redis://localhost:6379 below it")
	case c.Store.Kind == Redis && !hasScheme(c.Store.URL, "redis://", "rediss://", "unix://"):
		d.Fault(at("store.url"), "store.url: %s: write a URL that begins with redis://, rediss:// for TLS, or unix://", schemeOf(c.Store.URL))
	}
	if n := at("store.tls"); n != nil {
		switch {
		case c.Store.Kind == Memory:
			d.Fault(n, "store.tls: the memory store has no servers: remove it, or change kind")
		case !d.sound("store.tls", "store.url"):
		case (c.Store.TLS.CertFile == "") != (c.Store.TLS.KeyFile == ""):
			d.Fault(n, "store.tls: a certificate and its key go together: set cert_file and key_file, or neither")
		case c.Store.Kind == Redis && !hasScheme(c.Store.URL, "rediss://"):
			d.Fault(n, "store.tls: the url does not use TLS: begin it with rediss://")
		}
	}
	for name, kind := range map[string]string{
		"store.url": Redis, "store.password_file": Redis, "store.addresses": Memcached, "store.max_memory": Memory, "store.snapshot_file": Memory,
	} {
		if n := at(name); n != nil && c.Store.Kind != kind {
			d.Fault(n, "%s: is for kind: %s, and this is %s: remove it, or change kind", name, kind, c.Store.Kind)
		}
	}
}

// checkShares reports a maximum per address or key that is larger than the total maximum.
func (d *decoder) checkShares(at func(string) *strictyaml.Node) {
	c := d.to
	requests := cmp.Or(c.Gateway.MaxRequests, c.Gateway.MaxConnections)
	for _, s := range []struct {
		part, whole string
		set, total  int64
		text        func(int64) string
	}{
		{"listeners.grpc.max_connections_per_address", "max_connections", c.GRPC.MaxConnectionsPerAddress, c.GRPC.MaxConnections, plainText},
		{"listeners.http.max_connections_per_address", "max_connections", c.HTTP.MaxConnectionsPerAddress, c.HTTP.MaxConnections, plainText},
		{"listeners.resp.max_connections_per_address", "max_connections", c.RESP.MaxConnectionsPerAddress, c.RESP.MaxConnections, plainText},
		{"listeners.gateway.max_connections_per_address", "max_connections", c.Gateway.MaxConnectionsPerAddress, c.Gateway.MaxConnections, plainText},
		{"gateway.max_requests_per_address", "max_requests", c.Gateway.MaxRequestsPerAddress, requests, plainText},
		{"queue.max_total_size_per_key", "max_total_size", c.Queue.MaxTotalSizePerKey, c.Queue.MaxTotalSize, sizeText},
		{"queue.max_items_per_key", "max_items", c.Queue.MaxItemsPerKey, c.Queue.MaxItems, plainText},
	} {
		section := s.part[:strings.LastIndexByte(s.part, '.')+1]
		if n := at(s.part); n != nil && s.set > s.total && d.sound(s.part, section+s.whole, "listeners.gateway.max_connections") {
			d.Fault(n, "%s: %s is more than %s (%s): write at most that, or raise it", s.part, s.text(s.set), s.whole, s.text(s.total))
		}
	}
}

func plainText(n int64) string { return strconv.FormatInt(n, 10) }

// checkAdmin reports an admin API that other hosts can reach without authentication.
func (d *decoder) checkAdmin(at func(string) *strictyaml.Node) {
	a := &d.to.Admin
	if !d.sound("admin", "listeners.admin") {
		return
	}
	if n := at("admin"); n != nil && a.Address == Off {
		d.Fault(n, "admin: the listener is off: remove this section, or listeners.admin.address")
	}
	if n := at("listeners.admin.address"); n != nil && !isLoopback(a.Address) && a.TokenFile == "" && a.TLS.ClientCAFile == "" {
		d.Fault(n, "listeners.admin.address: %s can be reached from other hosts without authentication: "+
			"set admin.token_file or listeners.admin.tls.client_ca_file, or write 127.0.0.1:6070", a.Address)
	}
}

// isLoopback reports whether only local processes can reach an address: loopback, a Unix socket, or Off.
func isLoopback(address string) bool {
	if address == Off || strings.HasPrefix(address, "unix:") {
		return true
	}
	host, _, _ := net.SplitHostPort(address)
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

func (d *decoder) checkTLS(name string, t *TLS, at func(string) *strictyaml.Node) {
	n := at(name)
	if n != nil && (t.CertFile == "" || t.KeyFile == "") && d.sound(name) {
		d.Fault(n, "%s: TLS needs both a certificate and its key: set cert_file and key_file", name)
	}
}

// schemeOf describes the beginning of a URL in errors. The rest is not shown, because it may contain a password.
func schemeOf(url string) string {
	if scheme, _, ok := strings.Cut(url, "://"); ok {
		return "begins with " + strictyaml.Quote(scheme+"://")
	}
	return "has no scheme"
}

func hasScheme(url string, schemes ...string) bool {
	for _, s := range schemes {
		if strings.HasPrefix(url, s) {
			return true
		}
	}
	return false
}

// find returns the node of a setting or section, or nil if it is not in the file.
func find(n *strictyaml.Node, name string) *strictyaml.Node {
	for part := range strings.SplitSeq(name, ".") {
		if n == nil {
			return nil
		}
		n = n.Field(part)
	}
	return n
}
