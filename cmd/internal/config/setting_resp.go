package config

import (
	"slices"

	"github.com/sluiceproject/sluice/internal/strictyaml"
)

// RESP is the listener for Redis clients, and what they may ask.
type RESP struct {
	Address        string
	TLS            TLS
	MaxConnections int64
	MaxPerAddress  int64 // connections; 0: a quarter of MaxConnections
	PasswordFile   string
	OnFailure      string // local, open or closed
}

func (r *RESP) listener() []Setting {
	return slices.Concat(
		[]Setting{
			{"listeners.resp.address", address(&r.Address), Off, "where Redis clients ask with `CL.THROTTLE`: `host:port`, `unix:///path`, or `off`. Beyond this machine it needs `resp.password_file` or `client_ca`"},
		},
		tlsSettings("listeners.resp.tls.", &r.TLS),
		[]Setting{
			{"listeners.resp.max_connections", number(&r.MaxConnections, 1, 1e6), "10000", "connections at once; more are closed"},
			perAddress("listeners.resp.", &r.MaxPerAddress),
		},
	)
}

func (r *RESP) settings() []Setting {
	return []Setting{
		{"resp.password_file", file(&r.PasswordFile), "", "with the password that Redis clients must show, in one line; read again whenever one does"},
		{"resp.on_failure", word(&r.OnFailure, "local", "open", "closed"), "local", "what Redis clients are answered while the store cannot: what this process counts, always yes, always no"},
	}
}

func (d *decoder) checkRESP(at func(string) *strictyaml.Node) {
	c := &d.to.RESP
	d.checkTLS("listeners.resp.tls", &c.TLS, at)
	if c.PasswordFile == "" && c.TLS.ClientCA == "" && !isLoopback(c.Address) && d.sound("listeners.resp", "resp.password_file") {
		d.Fault(at("listeners.resp.address"), "listeners.resp.address: whoever reaches %s may spend anybody's limits: "+
			"set resp.password_file or listeners.resp.tls.client_ca, or listen on 127.0.0.1", c.Address)
	}
}
