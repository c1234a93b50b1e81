package config

import "github.com/sluiceproject/sluice/internal/strictyaml"

// RESP is the listener for Redis clients, and what they may ask.
type RESP struct {
	Address        string
	TLS            TLS
	MaxConnections int64
	MaxPerAddress  int64 // connections; 0: a quarter of MaxConnections
	PasswordFile   string
	OnFailure      string // local, open or closed
}

var respListener = join(
	[]Setting{
		{
			"listeners.resp.address", "address", Off,
			"where Redis clients ask with `CL.THROTTLE`: `host:port`, `unix:///path`, or `off`. Beyond this machine it needs `resp.password_file` or `client_ca`",
			address(func(c *Config) *string { return &c.RESP.Address }),
		},
	},
	tlsSettings("listeners.resp.tls.", func(c *Config) *TLS { return &c.RESP.TLS }),
	[]Setting{
		{
			"listeners.resp.max_connections", "number", "10000",
			"connections at once; more are closed",
			number(func(c *Config) *int64 { return &c.RESP.MaxConnections }, 1, 1e6),
		},
		perAddress("listeners.resp.", func(c *Config) *int64 { return &c.RESP.MaxPerAddress }),
	},
)

var respSettings = []Setting{
	{
		"resp.password_file", "file", "",
		"with the password that Redis clients must show, in one line; read again whenever one does",
		text(func(c *Config) *string { return &c.RESP.PasswordFile }),
	},
	{
		"resp.on_failure", "`local`, `open`, `closed`", "local",
		"what Redis clients are answered while the store cannot: what this process counts, always yes, always no",
		word(func(c *Config) *string { return &c.RESP.OnFailure }, "local", "open", "closed"),
	},
}

func (d *decoder) checkRESP(at func(string) *strictyaml.Node) {
	c := &d.to.RESP
	d.checkTLS("listeners.resp.tls", &c.TLS, at)
	if c.PasswordFile == "" && c.TLS.ClientCA == "" && !isLoopback(c.Address) {
		d.Fault(at("listeners.resp.address"), "listeners.resp.address: whoever reaches %s may spend anybody's limits: "+
			"set resp.password_file or listeners.resp.tls.client_ca, or listen on 127.0.0.1", c.Address)
	}
}
