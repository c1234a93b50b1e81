package listen

import (
	"net"
	"net/netip"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/edge/shares"
)

type addressed struct {
	net.Conn
	remote net.Addr
}

func (a addressed) RemoteAddr() net.Addr { return a.remote }

// IPv6 counts by /64, mapped IPv4 counts as IPv4, and peers without an address are not counted.
func TestConnectionsOfAddress(t *testing.T) {
	b := &bounded{connections: connections{max: 100, shares: shares.NewCounter[netip.Prefix](2)}}
	enter := func(address string) func() {
		if address == "" {
			return b.enter(addressed{remote: &net.UnixAddr{Name: "@", Net: "unix"}})
		}
		return b.enter(addressed{remote: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(address), 1))})
	}
	for _, same := range [][3]string{
		{"2001:db8::1", "2001:db8::2", "2001:db8::ffff:ffff:ffff:ffff"},
		{"192.0.2.1", "::ffff:192.0.2.1", "192.0.2.1"},
		{"fe80::1%a", "fe80::1%b", "fe80::2%a"},
	} {
		first, second, third := enter(same[0]), enter(same[1]), enter(same[2])
		if first == nil || second == nil || third != nil {
			t.Errorf("%v do not count as one", same)
			continue
		}
		first()
		if third = enter(same[2]); third == nil {
			t.Errorf("%v: one that was closed still counts", same)
			continue
		}
		second()
		third()
	}
	if enter("2001:db8:0:1::1") == nil || enter("2001:db8:0:2::1") == nil || enter("2001:db8:0:3::1") == nil {
		t.Error("different networks count as one")
	}
	for range 10 {
		if enter("") == nil {
			t.Error("peers without an address count as one")
		}
	}
	if n := b.open.Load(); n != 13 {
		t.Errorf("%d connections are open, want 13", n)
	}
}
