package listen_test

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/edge/listen"
	"github.com/sluiceproject/sluice/internal/bounds"
)

// from dials from a given loopback address.
func from(t *testing.T, client, address string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(client)}}
	c, err := d.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

func lives(c net.Conn) bool {
	_, err := io.WriteString(c, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
	b := make([]byte, 12)
	if err == nil {
		_, err = io.ReadFull(c, b)
	}
	return err == nil && string(b) == "HTTP/1.1 200"
}

// Idle connections of one address exclude only further ones of that address. A trusted proxy may use all connections.
func TestMaxPerAddress(t *testing.T) {
	const total, share = 40, 10
	proxy := netip.MustParseAddr("127.0.0.3")
	r := start(t, listen.Config{
		HTTP:   listen.HTTP{Endpoint: listen.Endpoint{Address: "127.0.0.1:0", MaxConnections: total, MaxPerAddress: share}},
		Exempt: func(a netip.Addr) bool { return a == proxy },
	})
	was, wasAll := bounds.ConnectionsPerAddress.Count(), bounds.Connections.Count()
	address := r.HTTPAddr().String()
	idle := make([]net.Conn, total)
	for i := range idle {
		idle[i] = from(t, "127.0.0.1", address)
	}
	for range 5 {
		if !lives(from(t, "127.0.0.2", address)) {
			t.Fatal("another address is kept out")
		}
	}
	if lives(from(t, "127.0.0.1", address)) {
		t.Error("the address has more than its share")
	}
	if n := bounds.ConnectionsPerAddress.Count() - was; n != total-share+1 {
		t.Errorf("the bound was reached %d times, want %d", n, total-share+1)
	}
	for range share + 5 {
		if !lives(from(t, proxy.String(), address)) {
			t.Fatal("a trusted proxy is kept out")
		}
	}
	if n := bounds.Connections.Count() - wasAll; n != 0 {
		t.Errorf("the bound of all connections was reached %d times", n)
	}
	for _, c := range idle {
		_ = c.Close()
	}
	for !lives(from(t, "127.0.0.1", address)) { // until the server has noticed the closed connections
		if t.Context().Err() != nil {
			t.Fatal("there is no room again")
		}
	}
}
