package grpclimit_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/sluiceproject/sluice/grpclimit"
)

// addr is a textual address, as in a server behind net/http.
type addr struct{ network, text string }

func (a addr) Network() string { return a.network }
func (a addr) String() string  { return a.text }

func tcp(ip, zone string, port int) net.Addr {
	return &net.TCPAddr{IP: net.ParseIP(ip), Zone: zone, Port: port}
}

func keyOf(t testing.TB, ctx context.Context, method string, f grpclimit.KeyFunc) string {
	t.Helper()
	key, err := f(ctx, method)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestByPeer(t *testing.T) {
	tests := []struct {
		name string
		addr net.Addr
		want string
	}{
		{"IPv4", tcp("192.0.2.7", "", 1234), "192.0.2.7"},
		{"IPv4 other port", tcp("192.0.2.7", "", 4321), "192.0.2.7"},
		{"IPv4 other host", tcp("192.0.2.8", "", 1234), "192.0.2.8"},
		{"IPv4 four bytes", &net.TCPAddr{IP: net.IP{192, 0, 2, 7}, Port: 1}, "192.0.2.7"},
		{"IPv4 loopback", tcp("127.0.0.1", "", 1), "127.0.0.1"},
		{"IPv4 mapped", tcp("::ffff:192.0.2.7", "", 1), "192.0.2.7"},
		{"IPv4 mapped, in words", addr{"tcp", "[::ffff:192.0.2.7]:1234"}, "192.0.2.7"},
		{"IPv4 mapped, in hex", addr{"tcp", "[::ffff:c000:207]:1234"}, "192.0.2.7"},
		{"IPv4 mapped with a zone", addr{"tcp", "[::ffff:192.0.2.7%eth0]:1234"}, "192.0.2.7"},
		{"IPv4 in words", addr{"tcp", "192.0.2.7:1234"}, "192.0.2.7"},
		{"IPv4 without port", addr{"tcp", "192.0.2.7"}, "192.0.2.7"},
		{"IPv4 by another network", addr{"udp", "192.0.2.7:53"}, "192.0.2.7"},
		{"IPv4 with leading zeros", addr{"tcp", "192.0.02.7:1"}, "tcp/192.0.02.7"},
		{"IPv6", tcp("2001:db8:1:2:3:4:5:6", "", 1), "2001:db8:1:2::/64"},
		{"IPv6 same subscriber", tcp("2001:db8:1:2:ffff:ffff:ffff:ffff", "", 9), "2001:db8:1:2::/64"},
		{"IPv6 first of network", tcp("2001:db8:1:2::", "", 9), "2001:db8:1:2::/64"},
		{"IPv6 next subscriber", tcp("2001:db8:1:3::1", "", 1), "2001:db8:1:3::/64"},
		{"IPv6 upper case", addr{"tcp", "[2001:DB8:1:2::6]:1"}, "2001:db8:1:2::/64"},
		{"IPv6 spelled out", addr{"tcp", "[2001:0db8:0001:0002:0000:0000:0000:0006]:1"}, "2001:db8:1:2::/64"},
		{"IPv6 without port", addr{"tcp", "2001:db8:1:2::6"}, "2001:db8:1:2::/64"},
		{"IPv6 in brackets without port", addr{"tcp", "[2001:db8:1:2::6]"}, "2001:db8:1:2::/64"},
		{"IPv6 loopback", tcp("::1", "", 1), "::/64"},
		{"IPv6 IPv4-compatible is not mapped", tcp("::192.0.2.7", "", 1), "::/64"},
		{"IPv6 NAT64 is not mapped", tcp("64:ff9b::c000:207", "", 1), "64:ff9b::/64"},
		{"IPv6 link-local with zone", tcp("fe80::1", "eth0", 1), "fe80::/64"},
		{"IPv6 link-local other zone", tcp("fe80::1", "eth1", 1), "fe80::/64"},
		{"IPv6 zone in text", addr{"tcp", "[fe80::1%25eth0]:1"}, "fe80::/64"},
		{"Unix unnamed", &net.UnixAddr{Net: "unix"}, "unix"},
		{"Unix at", &net.UnixAddr{Net: "unix", Name: "@"}, "unix"},
		{"Unix named by the client", &net.UnixAddr{Net: "unix", Name: "/tmp/mine"}, "unix"},
		{"Unix name like an address", &net.UnixAddr{Net: "unix", Name: "192.0.2.7:1"}, "unix"},
		{"Unix packets", &net.UnixAddr{Net: "unixpacket", Name: "@x"}, "unix"},
		{"host and port of another network", addr{"vsock", "vm(3):1024"}, "vsock/vm(3)"},
		{"no port in another network", addr{"bufconn", "bufconn"}, "bufconn/bufconn"},
		{"host name", addr{"tcp", "example.com:443"}, "tcp/example.com"},
		{"nothing known", addr{"", ""}, "unknown"},
		{"port alone", addr{"tcp", ":443"}, "unknown"},
		{"TCP without IP", &net.TCPAddr{Port: 443}, "unknown"},
		{"nil TCP", (*net.TCPAddr)(nil), "unknown"},
		{"nil", nil, "unknown"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: tt.addr})
			if got := keyOf(t, ctx, echoMethod, grpclimit.ByPeer()); got != tt.want {
				t.Errorf("key of %v = %q, want %q", tt.addr, got, tt.want)
			}
		})
	}
	if got := keyOf(t, t.Context(), echoMethod, grpclimit.ByPeer()); got != "unknown" {
		t.Errorf("key without a peer = %q, want %q", got, "unknown")
	}
}

// incoming returns a context with values of the entry "user", or without the entry if there are none.
func incoming(values ...string) context.Context {
	md := metadata.MD{"other": {"x"}}
	if len(values) > 0 {
		md["user"] = values
	}
	return metadata.NewIncomingContext(context.Background(), md)
}

func TestByMetadata(t *testing.T) {
	tests := []struct {
		values []string
		want   string
	}{
		{nil, ""},
		{[]string{""}, "="},
		{[]string{"alice"}, "=alice"},
		{[]string{"=alice"}, "==alice"},
		{[]string{"a", "b"}, "+1:a1:b"},
		{[]string{"+1:a1:b"}, "=+1:a1:b"},
		{[]string{"a,b"}, "=a,b"},
		{[]string{"", ""}, "+0:0:"},
		{[]string{"", "", ""}, "+0:0:0:"},
		{[]string{"1:a", "b"}, "+3:1:a1:b"},
	}
	for _, tt := range tests {
		if got := keyOf(t, incoming(tt.values...), echoMethod, grpclimit.ByMetadata("User")); got != tt.want {
			t.Errorf("key of %q = %q, want %q", tt.values, got, tt.want)
		}
	}
	if got := keyOf(t, t.Context(), echoMethod, grpclimit.ByMetadata("user")); got != "" {
		t.Errorf("key without metadata = %q, want none", got)
	}
}

func TestOtherKeys(t *testing.T) {
	ctx := incoming("alice")
	shout := grpclimit.ByFunc(func(_ context.Context, m string) string { return strings.ToUpper(m) })
	tests := []struct {
		name string
		key  grpclimit.KeyFunc
		want string
	}{
		{"global", grpclimit.Global(), ""},
		{"method", grpclimit.ByMethod(), echoMethod},
		{"func", shout, "/TEST.ECHO/ECHO"},
		{"combine", grpclimit.Combine(grpclimit.ByMetadata("user"), grpclimit.ByMethod()), "6:=alice15:/test.Echo/Echo"},
		{"combine none", grpclimit.Combine(), ""},
		{"combine absent", grpclimit.Combine(grpclimit.ByMetadata("nobody"), grpclimit.Global()), "0:0:"},
	}
	for _, tt := range tests {
		if got := keyOf(t, ctx, echoMethod, tt.key); got != tt.want {
			t.Errorf("%s: key = %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestCombineReportsErrors(t *testing.T) {
	want := errors.New("no user")
	key := grpclimit.Combine(grpclimit.Global(), func(context.Context, string) (string, error) { return "", want })
	if _, err := key(t.Context(), echoMethod); !errors.Is(err, want) {
		t.Errorf("error = %v, want %v", err, want)
	}
}

// FuzzCombine searches for different callers with the same key: metadata values, each a comma-separated list here with "-"
// for an absent entry, and plain strings.
func FuzzCombine(f *testing.F) {
	f.Add("alice", "x", "alice", "y")
	f.Add("-", "", "", "")
	f.Add("a,b", "", "a", "b")
	f.Add("1:a", "b", "1", ":ab")
	f.Add(",", "=", "", "+0:0:")
	f.Fuzz(func(t *testing.T, user1, part1, user2, part2 string) {
		key := func(user, part string) (values []string, text string) {
			if user != "-" {
				values = strings.Split(user, ",")
			}
			text = keyOf(t, incoming(values...), part, grpclimit.Combine(grpclimit.ByMetadata("user"), grpclimit.ByMethod()))
			return values, text
		}
		values1, key1 := key(user1, part1)
		values2, key2 := key(user2, part2)
		same := part1 == part2 && slices.Equal(values1, values2)
		if same != (key1 == key2) {
			t.Errorf("%q %q makes %q and %q %q makes %q", values1, part1, key1, values2, part2, key2)
		}
		// Another number of parts must not have the same key either.
		if one := keyOf(t, t.Context(), part1, grpclimit.Combine(grpclimit.ByMethod())); one == key2 {
			t.Errorf("%q alone and %q %q have the same key %q", part1, values2, part2, one)
		}
	})
}
