package config

import (
	"slices"

	"github.com/sluiceproject/sluice/internal/strictyaml"
)

// RESP is the listener for Redis clients.
type RESP struct {
	Address                  string
	TLS                      TLS
	MaxConnections           int64
	MaxConnectionsPerAddress int64 // 0: 25 % of MaxConnections
	PasswordFile             string
	OnFailure                string // local, open or closed
}

func (r *RESP) listener() []Setting {
	return slices.Concat(
		[]Setting{
			{"listeners.resp.address", address(&r.Address), Off, "address of the RESP listener for Redis clients (`CL.THROTTLE`): `host:port`, `unix:///path`, or `off`. A non-loopback address needs `resp.password_file` or `client_ca_file`"},
		},
		tlsSettings("listeners.resp.tls.", &r.TLS),
		[]Setting{
			{"listeners.resp.max_connections", number(&r.MaxConnections, 1, 1e6), "10000", "maximum open connections; further ones are closed"},
			perAddress("listeners.resp.", &r.MaxConnectionsPerAddress),
		},
	)
}

func (r *RESP) settings() []Setting {
	return []Setting{
		{"resp.password_file", file(&r.PasswordFile), "", "file with the password of Redis clients, in one line. Read at each `AUTH`"},
		{"resp.on_failure", word(&r.OnFailure, "local", "open", "closed"), "local", "fail mode while the store is unavailable: count in this process (`local`), allow (`open`) or deny (`closed`)"},
	}
}

func (d *decoder) checkRESP(at func(string) *strictyaml.Node) {
	c := &d.to.RESP
	d.checkTLS("listeners.resp.tls", &c.TLS, at)
	if c.PasswordFile == "" && c.TLS.ClientCAFile == "" && !isLoopback(c.Address) && d.sound("listeners.resp", "resp.password_file") {
		d.Fault(at("listeners.resp.address"), "listeners.resp.address: %s can be reached from other hosts without authentication: "+
			"set resp.password_file or listeners.resp.tls.client_ca_file, or listen on 127.0.0.1", c.Address)
	}
}
