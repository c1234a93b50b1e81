package rls

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// Clients are the domains that clients may ask about, by the names in their certificates: DNS names, URIs such as
// spiffe://cluster/ns/web, addresses of machines and of mail.
type Clients map[string]Domains

// Domains are names of domains; "*" means all.
type Domains map[string]bool

func (d Domains) allow(domain string) bool { return d[domain] || d["*"] }

// check refuses a client that may not ask about the domain.
func (c Clients) check(ctx context.Context, domain string) error {
	var cert *x509.Certificate
	if p, _ := peer.FromContext(ctx); p != nil {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(info.State.VerifiedChains) > 0 {
			cert = info.State.VerifiedChains[0][0]
		}
	}
	if err := c.isAuthorized(cert, domain); err != nil {
		return status.Error(codes.PermissionDenied, err.Error())
	}
	return nil
}

func (c Clients) isAuthorized(cert *x509.Certificate, domain string) error {
	switch {
	case c == nil:
		return nil
	case cert == nil:
		return errors.New("the client shows no certificate, and only clients that are known by one may ask")
	case !c.allow(cert, domain):
		return fmt.Errorf("no name in the client's certificate may ask about domain %q: have the operator add it to clients", domain)
	}
	return nil
}

// Authorize says why a client may not ask about a domain. The certificate is one that was verified, or nil.
func (d *Decider) Authorize(cert *x509.Certificate, domain string) error {
	return d.options.Clients.isAuthorized(cert, domain)
}

func (c Clients) allow(cert *x509.Certificate, domain string) bool {
	for _, name := range cert.DNSNames {
		if c[name].allow(domain) {
			return true
		}
	}
	for _, uri := range cert.URIs {
		if c[uri.String()].allow(domain) {
			return true
		}
	}
	for _, ip := range cert.IPAddresses {
		if c[ip.String()].allow(domain) {
			return true
		}
	}
	for _, mail := range cert.EmailAddresses {
		if c[mail].allow(domain) {
			return true
		}
	}
	return false
}
