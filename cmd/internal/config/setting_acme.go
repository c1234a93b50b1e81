package config

import (
	"github.com/sluiceproject/sluice/cmd/internal/edge/domainname"
	"github.com/sluiceproject/sluice/internal/strictyaml"
)

// Pair is the files of a certificate and its key.
type Pair struct{ Cert, Key string }

// ACME is how certificates are had from an authority. Without domains they are not.
type ACME struct {
	Domains              []string
	Email, Directory, CA string
	Cache                string
	HTTP                 string // an address, or Off
}

// certificatesType is the type of a setting that has keys of its own.
const certificatesType = "list of certificates"

func (p *Pair) keys() []Setting {
	return []Setting{
		{"cert", file(&p.Cert), "", "the certificate, PEM"},
		{"key", file(&p.Key), "", "its key, PEM"},
	}
}

// certificates are settings of the gateway's listener.
func (g *Gateway) certificates() []Setting {
	return []Setting{
		{"listeners.gateway.certificates", value{certificatesType, (*decoder).certificates, nil}, "", "further ones, `[{cert: FILE, key: FILE}]`. A client is shown the first that has the name it asks for, and the first of all if none has. Read again when they change"},
		{"listeners.gateway.acme.domains", texts("list of names", &g.ACME.Domains), "", "that certificates are had for from an authority (ACME), and renewed, see [authentication.md](authentication.md#certificates). Who sets it accepts the authority's terms"},
		{"listeners.gateway.acme.email", text("text", &g.ACME.Email), "", "where the authority writes to"},
		{"listeners.gateway.acme.directory", urlText(&g.ACME.Directory, `^https://`), "", "of the authority; without it Let's Encrypt"},
		{"listeners.gateway.acme.ca", file(&g.ACME.CA), "", "who signs the authority's own certificate, PEM, instead of those the system trusts"},
		{"listeners.gateway.acme.cache", text("directory", &g.ACME.Cache), "acme", "where the account's key, certificates and their keys are kept; only its owner may read it"},
		{"listeners.gateway.acme.http", address(&g.ACME.HTTP), Off, "also answer the authority over HTTP there, on port 80 as it sees it, and send all others to https. Without it the authority asks on the listener itself, port 443"},
	}
}

func (d *decoder) certificates(n *strictyaml.Node) {
	what := d.name
	items, ok := d.Sequence(n, what)
	if !ok {
		return
	}
	for _, item := range items {
		var p Pair
		if !readEntry(d, item, what, p.keys()) {
			continue
		}
		if p.Cert == "" || p.Key == "" {
			d.Fault(item, "%s: TLS needs both a certificate and its key: set cert and key", what)
			continue
		}
		d.to.Gateway.Certificates = append(d.to.Gateway.Certificates, p)
	}
}

func (d *decoder) checkACME(at func(string) *strictyaml.Node) {
	for _, domain := range d.to.Gateway.ACME.Domains {
		if err := domainname.CheckACME(domain); err != nil {
			d.Fault(at("listeners.gateway.acme.domains"), "listeners.gateway.acme.domains: %v", err)
		}
	}
	n, c := at("listeners.gateway.acme"), &d.to.Gateway.ACME
	switch {
	case n == nil || !d.sound("listeners.gateway.acme"):
	case len(c.Domains) == 0:
		d.Fault(n, "listeners.gateway.acme: there are no domains: write domains: [api.example.com], or remove it")
	case c.Directory != "" && !hasScheme(c.Directory, "https://"):
		d.Fault(n.Field("directory"), "listeners.gateway.acme.directory: write a URL that begins with https://")
	}
}

// certificateFiles are all paths of certificates.
func (g *Gateway) certificateFiles() []*string {
	all := []*string{&g.ACME.CA}
	if len(g.ACME.Domains) > 0 {
		all = append(all, &g.ACME.Cache)
	}
	for i := range g.Certificates {
		all = append(all, &g.Certificates[i].Cert, &g.Certificates[i].Key)
	}
	return all
}
