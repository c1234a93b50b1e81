package config

import (
	"github.com/sluiceproject/sluice/cmd/internal/edge/domainname"
	"github.com/sluiceproject/sluice/internal/strictyaml"
)

// KeyPair are the files of a certificate and its private key.
type KeyPair struct{ CertFile, KeyFile string }

// ACME obtains certificates from a CA. Without domains it is disabled.
type ACME struct {
	Domains                     []string
	Email, DirectoryURL, CAFile string
	CacheDir                    string
	HTTPAddress                 string // an address, or Off
}

// certificatesType is the type of listeners.gateway.certificates, whose entries have their own keys.
const certificatesType = "list of certificates"

func (p *KeyPair) keys() []Setting {
	return []Setting{
		{"cert_file", file(&p.CertFile), "", "PEM file of the certificate chain"},
		{"key_file", file(&p.KeyFile), "", "PEM file of the private key"},
	}
}

// certificates returns the settings of the gateway's certificates.
func (g *Gateway) certificates() []Setting {
	return []Setting{
		{"listeners.gateway.certificates", value{certificatesType, (*decoder).certificates, nil}, "", "additional certificates, `[{cert_file: FILE, key_file: FILE}]`. A client gets the first certificate for the server name that it requests (SNI), or the first of all if none matches. Reloaded within 5 s of a change and on SIGHUP"},
		{"listeners.gateway.acme.domains", texts("list of names", &g.ACME.Domains), "", "domains to obtain and renew certificates for with ACME, see [tls.md](tls.md#acme). Setting it accepts the CA's terms of service"},
		{"listeners.gateway.acme.email", text("text", &g.ACME.Email), "", "contact address of the ACME account"},
		{"listeners.gateway.acme.directory_url", urlText(&g.ACME.DirectoryURL, `^https://`), "", "directory URL of the ACME CA. Default: Let's Encrypt"},
		{"listeners.gateway.acme.ca_file", file(&g.ACME.CAFile), "", "PEM file of the CAs to verify the ACME server's certificate with, instead of the system's"},
		{"listeners.gateway.acme.cache_dir", text("directory", &g.ACME.CacheDir), "acme", "directory of the account key, the certificates and their private keys. Only its owner may have access (mode 0700)"},
		{"listeners.gateway.acme.http_address", address(&g.ACME.HTTPAddress), Off, "address of an additional HTTP listener for HTTP-01 challenges, which the CA must reach on port 80; other requests are redirected to https. With `off` the CA must reach the gateway's listener on port 443 (TLS-ALPN-01)"},
	}
}

func (d *decoder) certificates(n *strictyaml.Node) {
	what := d.name
	items, ok := d.Sequence(n, what)
	if !ok {
		return
	}
	for _, item := range items {
		var p KeyPair
		if !readEntry(d, item, what, p.keys()) {
			continue
		}
		if p.CertFile == "" || p.KeyFile == "" {
			d.Fault(item, "%s: TLS needs both a certificate and its key: set cert_file and key_file", what)
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
	case c.DirectoryURL != "" && !hasScheme(c.DirectoryURL, "https://"):
		d.Fault(n.Field("directory_url"), "listeners.gateway.acme.directory_url: %s: write a URL that begins with https://", schemeOf(c.DirectoryURL))
	}
}

// certificateFiles returns all paths in the certificate settings.
func (g *Gateway) certificateFiles() []*string {
	all := []*string{&g.ACME.CAFile}
	if len(g.ACME.Domains) > 0 {
		all = append(all, &g.ACME.CacheDir)
	}
	for i := range g.Certificates {
		all = append(all, &g.Certificates[i].CertFile, &g.Certificates[i].KeyFile)
	}
	return all
}
