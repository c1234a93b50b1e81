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

// Clients maps names in client certificates to the domains they are authorized for. Names are DNS names, URIs such as
// spiffe://cluster/ns/web, IP addresses and email addresses.
type Clients map[string]Domains

// Domains is a set of domains; "*" means all.
type Domains map[string]bool

func (d Domains) allow(domain string) bool { return d[domain] || d["*"] }

// check returns an error if the client of the call is not authorized for the domain.
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
		return errors.New("client certificate required: only clients listed in the configuration are authorized")
	case !c.allow(cert, domain):
		return fmt.Errorf("no name in the client certificate is authorized for domain %q: have the operator add it to clients", domain)
	}
	return nil
}

// Authorize returns an error if a client is not authorized for a domain. cert is its verified certificate, or nil.
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
