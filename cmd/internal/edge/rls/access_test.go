package rls_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/sluiceproject/sluice/cmd/internal/edge/rls"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rulefile"
	"github.com/sluiceproject/sluice/rules"
)

// as returns the context of a call by a client with these names in its certificate.
func as(t *testing.T, verified bool, names ...string) context.Context {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "web"}, NotAfter: time.Now().Add(time.Hour),
	}
	for _, name := range names {
		switch u, err := url.Parse(name); {
		case net.ParseIP(name) != nil:
			template.IPAddresses = append(template.IPAddresses, net.ParseIP(name))
		case err == nil && u.Scheme != "":
			template.URIs = append(template.URIs, u)
		case name == "ops@example.com":
			template.EmailAddresses = append(template.EmailAddresses, name)
		default:
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	state := tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}
	if verified {
		state.VerifiedChains = [][]*x509.Certificate{{cert}}
	}
	return peer.NewContext(t.Context(), &peer.Peer{AuthInfo: credentials.TLSInfo{State: state}})
}

func TestClients(t *testing.T) {
	d := decider(t, memstore.New(), rls.Options{Clients: rls.Clients{
		"web.example.com":            {"d": true},
		"spiffe://cluster/ns/other":  {"other": true},
		"spiffe://cluster/ns/admins": {"*": true},
		"10.0.0.1":                   {"d": true},
		"ops@example.com":            {"d": true},
	}}, rulefile.Options{}, rulesIn(t, "  - {key: k, rate_limit: {unit: year, requests_per_unit: 10}}\n"))
	tests := []struct {
		name string
		ctx  context.Context
		want codes.Code
	}{
		{"a DNS name", as(t, true, "web.example.com"), codes.OK},
		{"one of several names", as(t, true, "x.example.com", "spiffe://cluster/ns/other", "web.example.com"), codes.OK},
		{"a URI that may all", as(t, true, "spiffe://cluster/ns/admins"), codes.OK},
		{"an address", as(t, true, "10.0.0.1"), codes.OK},
		{"an address of mail", as(t, true, "ops@example.com"), codes.OK},
		{"of another domain", as(t, true, "spiffe://cluster/ns/other"), codes.PermissionDenied},
		{"unknown", as(t, true, "x.example.com"), codes.PermissionDenied},
		{"the common name is no name", as(t, true), codes.PermissionDenied},
		{"not verified", as(t, false, "web.example.com"), codes.PermissionDenied},
		{"without a certificate", peer.NewContext(t.Context(), &peer.Peer{}), codes.PermissionDenied},
		{"nobody", t.Context(), codes.PermissionDenied},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			req := rls.Request{Domain: "d", Descriptors: []rls.Descriptor{{Entries: []rules.Entry{{Key: "k", Value: "v"}}}}}
			var resp rls.Response
			err := d.ShouldRateLimit(tt.ctx, &req, &resp)
			if status.Code(err) != tt.want {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			if told := fmt.Sprint(len(resp.Statuses)); err != nil && told != "0" {
				t.Errorf("%s statuses for an unauthorized client", told)
			}
		})
	}
}
