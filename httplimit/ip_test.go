package httplimit_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/httplimit"
)

// noAddr is the key of peers without an address.
const noAddr = "\x00?"

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, s := range texts {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

// Configurations of ByIP by the names that the vectors use.
var (
	proxies = httplimit.TrustedProxies(prefixes("10.0.0.0/8", "127.0.0.1/32", "2001:db8:ffff::/48")...)
	ways    = map[string]httplimit.KeyFunc{
		"peer":   httplimit.ByIP(),
		"xff":    httplimit.ByIP(proxies),
		"fwd":    httplimit.ByIP(proxies, httplimit.ClientIPHeader("forwarded")),
		"real":   httplimit.ByIP(proxies, httplimit.ClientIPHeader("x-real-ip")),
		"hop1":   httplimit.ByIP(httplimit.ProxyHops(1)),
		"hop2":   httplimit.ByIP(httplimit.ProxyHops(2)),
		"hop2tp": httplimit.ByIP(httplimit.ProxyHops(2), proxies),
		"hop1f":  httplimit.ByIP(httplimit.ProxyHops(1), httplimit.ClientIPHeader("Forwarded")),
		"mapped": httplimit.ByIP(httplimit.TrustedProxies(prefixes("::ffff:10.0.0.0/104")...)),
		"dirty":  httplimit.ByIP(httplimit.TrustedProxies(prefixes("10.1.2.3/8")...)),
		"all4":   httplimit.ByIP(httplimit.TrustedProxies(prefixes("0.0.0.0/0")...)),
		"unix":   httplimit.ByIP(httplimit.TrustUnixSockets()),
		"b32":    httplimit.ByIP(httplimit.IPv6PrefixBits(32)),
		"b48":    httplimit.ByIP(httplimit.IPv6PrefixBits(48)),
		"b56":    httplimit.ByIP(httplimit.IPv6PrefixBits(56)),
		"b128":   httplimit.ByIP(httplimit.IPv6PrefixBits(128)),
	}
	headerOf = map[string]string{"fwd": "Forwarded", "hop1f": "Forwarded", "real": "X-Real-Ip"}
)

// tp is the address of a trusted proxy.
const tp = "10.0.0.1:443"

type ipVector struct {
	way, peer string
	lines     []string // of the client IP header
	want      string
}

func lines(l ...string) []string { return l }

// peerVectors: no peer is trusted, so headers are never read.
var peerVectors = []ipVector{
	{"peer", "1.2.3.4:5678", nil, "1.2.3.4"},
	{"peer", "1.2.3.4:5678", lines("9.9.9.9"), "1.2.3.4"},
	{"peer", "10.0.0.1:80", lines("9.9.9.9"), "10.0.0.1"},
	{"peer", "127.0.0.1:80", lines("9.9.9.9"), "127.0.0.1"},
	{"peer", "1.2.3.4", nil, "1.2.3.4"}, // middleware that rewrites RemoteAddr may drop the port
	{"peer", "1.2.3.4:", nil, noAddr},
	{"peer", "1.2.3.4:http", nil, noAddr},
	{"peer", "1.2.3.4:123456", nil, noAddr},
	{"peer", "01.2.3.4:80", nil, noAddr}, // octal for some parsers
	{"peer", "1.2.3:80", nil, noAddr},
	{"peer", "0x7f.1:80", nil, noAddr},
	{"peer", "2130706433:80", nil, noAddr},
	{"peer", "1.2.3.256:80", nil, noAddr},
	{"peer", " 1.2.3.4:80", nil, noAddr},
	{"peer", "[1.2.3.4]:80", nil, noAddr},
	{"peer", "localhost:80", nil, noAddr},
	{"peer", "", nil, noAddr},
	{"peer", "@", nil, noAddr},
	{"peer", "/run/app.sock", nil, noAddr},
	{"peer", "pipe", nil, noAddr},
	{"peer", "1.2.3.4\x00:80", nil, noAddr},
	{"peer", "[2001:db8::1]:80", nil, "2001:db8::/64"},
	{"peer", "[2001:db8::1%eth0]:80", nil, "2001:db8::/64"},
	{"peer", "[fe80::1%eth0]:80", nil, "fe80::/64"},
	{"peer", "2001:db8::1", nil, "2001:db8::/64"},
	{"peer", "[2001:DB8:0:0:0:0:0:1]:80", nil, "2001:db8::/64"},
	{"peer", "[2001:db8::1", nil, noAddr},
	{"peer", "[2001:db8::1]80", nil, noAddr},
	{"peer", "[]:80", nil, noAddr},
	{"peer", "[::1]:80", nil, "::/64"},
	{"peer", "[2001:db8:1:2:3:4:5:6]:80", nil, "2001:db8:1:2::/64"},
	{"peer", "[2001:db8:1:2:ffff:ffff:ffff:ffff]:80", nil, "2001:db8:1:2::/64"},
	{"peer", "[2001:db8:1:3::1]:80", nil, "2001:db8:1:3::/64"},
	{"b32", "[2001:db8:1:2:3:4:5:6]:80", nil, "2001:db8::/32"},
	{"b48", "[2001:db8:1:2:3:4:5:6]:80", nil, "2001:db8:1::/48"},
	{"b56", "[2001:db8:1:2ff:3:4:5:6]:80", nil, "2001:db8:1:200::/56"},
	{"b128", "[2001:db8:1:2:3:4:5:6]:80", nil, "2001:db8:1:2:3:4:5:6"},
	{"b128", "[fe80::1%eth0]:80", nil, "fe80::1"},
	{"b48", "1.2.3.4:80", nil, "1.2.3.4"},
	// IPv4-mapped addresses in all spellings are the IPv4 address, for any prefix length.
	{"peer", "[::ffff:1.2.3.4]:80", nil, "1.2.3.4"},
	{"peer", "[::ffff:102:304]:80", nil, "1.2.3.4"},
	{"peer", "[::FFFF:1.2.3.4]:80", nil, "1.2.3.4"},
	{"peer", "[0:0:0:0:0:ffff:102:304]:80", nil, "1.2.3.4"},
	{"peer", "[0000:0000:0000:0000:0000:ffff:0102:0304]:80", nil, "1.2.3.4"},
	{"peer", "::ffff:1.2.3.4", nil, "1.2.3.4"},
	{"peer", "[::ffff:1.2.3.5]:80", nil, "1.2.3.5"},
	{"b32", "[::ffff:1.2.3.4]:80", nil, "1.2.3.4"},
	{"b56", "[::ffff:102:305]:80", nil, "1.2.3.5"},
	{"b128", "[::ffff:1.2.3.4]:80", nil, "1.2.3.4"},
	// Other addresses that embed an IPv4 address.
	{"peer", "[64:ff9b::1.2.3.4]:80", nil, "64:ff9b::102:304"},
	{"peer", "[64:ff9b::1.2.3.5]:80", nil, "64:ff9b::102:305"},
	{"b48", "[64:ff9b::1.2.3.4]:80", nil, "64:ff9b::102:304"},
	{"peer", "[64:ff9b:1::1.2.3.4]:80", nil, "64:ff9b:1::/64"},
	{"peer", "[2002:102:304:1::1]:80", nil, "2002:102:304::/48"},
	{"peer", "[2002:102:304:ffff::1]:80", nil, "2002:102:304::/48"},
	{"b128", "[2002:102:304:1::1]:80", nil, "2002:102:304::/48"},
	{"b32", "[2002:102:304:1::1]:80", nil, "2002:102::/32"},
}

// xffVectors have X-Forwarded-For, or a similar header, from a trusted peer.
var xffVectors = []ipVector{
	{"xff", tp, nil, "10.0.0.1"},
	{"xff", tp, lines(""), "10.0.0.1"},
	{"xff", tp, lines("1.2.3.4"), "1.2.3.4"},
	{"xff", "8.8.8.8:443", lines("1.2.3.4"), "8.8.8.8"}, // not a trusted proxy
	{"xff", "11.0.0.1:443", lines("1.2.3.4"), "11.0.0.1"},
	{"xff", "[2001:db8:ffff::1]:443", lines("1.2.3.4"), "1.2.3.4"},
	{"xff", "[2001:db8:fffe::1]:443", lines("1.2.3.4"), "2001:db8:fffe::/64"},
	{"xff", "[::ffff:10.0.0.1]:443", lines("1.2.3.4"), "1.2.3.4"},
	{"xff", "[::ffff:11.0.0.1]:443", lines("1.2.3.4"), "11.0.0.1"},
	{"mapped", tp, lines("1.2.3.4"), "1.2.3.4"},
	{"mapped", "[::ffff:10.0.0.1]:443", lines("1.2.3.4"), "1.2.3.4"},
	{"dirty", tp, lines("1.2.3.4"), "1.2.3.4"},
	{"xff", "", lines("1.2.3.4"), noAddr},
	{"xff", "garbage", lines("1.2.3.4"), noAddr},
	{"xff", "@", lines("1.2.3.4"), noAddr},
	// Entries that the client sent are on the left and are ignored.
	{"xff", tp, lines("9.9.9.9, 1.2.3.4"), "1.2.3.4"},
	{"xff", tp, lines("10.0.0.9, 1.2.3.4"), "1.2.3.4"},
	{"xff", tp, lines("127.0.0.1, 1.2.3.4"), "1.2.3.4"},
	{"xff", tp, lines("garbage, 1.2.3.4"), "1.2.3.4"},
	{"xff", tp, lines(", , 1.2.3.4"), "1.2.3.4"},
	{"xff", tp, lines(`"9.9.9.9, 1.2.3.4`), "1.2.3.4"},
	{"xff", tp, lines("9.9.9.9,8.8.8.8,7.7.7.7, 1.2.3.4"), "1.2.3.4"},
	{"xff", tp, lines("9.9.9.9", "1.2.3.4"), "1.2.3.4"},
	{"xff", tp, lines("1.2.3.4", "9.9.9.9"), "9.9.9.9"},
	{"xff", tp, lines("9.9.9.9, 8.8.8.8", "7.7.7.7, 1.2.3.4"), "1.2.3.4"},
	{"xff", tp, lines("1.2.3.4, 1.2.3.4", "1.2.3.4"), "1.2.3.4"},
	// Proxies in a row.
	{"xff", tp, lines("9.9.9.9, 1.2.3.4, 10.0.0.2"), "1.2.3.4"},
	{"xff", tp, lines("9.9.9.9, 1.2.3.4, 10.0.0.2, 10.0.0.3"), "1.2.3.4"},
	{"xff", tp, lines("9.9.9.9, 1.2.3.4", "10.0.0.2", "10.0.0.3"), "1.2.3.4"},
	{"xff", tp, lines("1.2.3.4, 2001:db8:ffff::2, ::ffff:10.0.0.2"), "1.2.3.4"},
	{"xff", tp, lines("10.0.0.3, 10.0.0.2"), "10.0.0.3"}, // a client among the proxies
	{"xff", tp, lines("1.2.3.4", ""), "1.2.3.4"},
	{"xff", tp, lines("1.2.3.4, "), "1.2.3.4"},
	{"xff", tp, lines("1.2.3.4,,,"), "1.2.3.4"},
	// Spelling.
	{"xff", tp, lines("  1.2.3.4\t"), "1.2.3.4"},
	{"xff", tp, lines("1.2.3.4:56789"), "1.2.3.4"},
	{"xff", tp, lines("2001:db8::1"), "2001:db8::/64"},
	{"xff", tp, lines("[2001:db8::1]"), "2001:db8::/64"},
	{"xff", tp, lines("[2001:db8::1]:80"), "2001:db8::/64"},
	{"xff", tp, lines("[2001:db8::1%eth0]:80"), "2001:db8::/64"},
	{"xff", tp, lines("2001:db8::1%25attacker-text"), "2001:db8::/64"},
	{"xff", tp, lines(`"1.2.3.4"`), "1.2.3.4"},
	{"xff", tp, lines(`"[2001:db8::1]:80"`), "2001:db8::/64"},
	{"xff", tp, lines("::ffff:1.2.3.4"), "1.2.3.4"},
	{"xff", tp, lines("::ffff:102:304"), "1.2.3.4"},
	{"xff", tp, lines("[::ffff:1.2.3.4]:80"), "1.2.3.4"},
	{"xff", tp, lines("9.9.9.9, ::ffff:10.0.0.2"), "9.9.9.9"},
	// At an entry that is no address, the last address read is the client.
	{"xff", tp, lines("unknown"), "10.0.0.1"},
	{"xff", tp, lines("_hidden"), "10.0.0.1"},
	{"xff", tp, lines("1.2.3.4, unknown"), "10.0.0.1"},
	{"xff", tp, lines("1.2.3.4, unknown, 10.0.0.2"), "10.0.0.2"},
	{"xff", tp, lines("1.2.3.4, 1.2.3.4.5, 10.0.0.2, 10.0.0.3"), "10.0.0.2"},
	{"xff", tp, lines(`"1.2.3.4, 5.6.7.8"`), "10.0.0.1"},
	{"xff", tp, lines("1.2.3.4 5.6.7.8"), "10.0.0.1"},
	{"xff", tp, lines("1.2.3.4;5.6.7.8"), "10.0.0.1"},
	{"xff", tp, lines("for=1.2.3.4"), "10.0.0.1"},
	{"xff", tp, lines("01.02.03.04"), "10.0.0.1"},
	{"xff", tp, lines("1.2.3"), "10.0.0.1"},
	{"xff", tp, lines("1.2.3.4/24"), "10.0.0.1"},
	{"xff", tp, lines("16909060"), "10.0.0.1"},
	{"xff", tp, lines("0x01020304"), "10.0.0.1"},
	{"xff", tp, lines("1.2.3.4\x00"), "10.0.0.1"},
	{"xff", tp, lines("１.2.3.4"), "10.0.0.1"},
	{"xff", tp, lines("[1.2.3.4]"), "10.0.0.1"},
	{"xff", tp, lines("[2001:db8::1"), "10.0.0.1"},
	{"xff", tp, lines("2001:db8:::1"), "10.0.0.1"},
	{"xff", tp, lines(`"`), "10.0.0.1"},
	{"xff", tp, lines("<script>"), "10.0.0.1"},
	// Size.
	{"xff", tp, lines(strings.Repeat("9.9.9.9, ", 10_000) + "1.2.3.4"), "1.2.3.4"},
	{"xff", tp, lines(strings.Repeat("9.9.9.9, ", 10_000) + "10.0.0.2"), "9.9.9.9"},
	{"xff", tp, lines("1.2.3.4" + strings.Repeat(", 10.0.0.2", 63)), "1.2.3.4"},
	{"xff", tp, lines("1.2.3.4" + strings.Repeat(", 10.0.0.2", 64)), "10.0.0.2"},
	{"xff", tp, lines("1.2.3.4" + strings.Repeat(", 10.0.0.2", 10_000)), "10.0.0.2"},
	{"xff", tp, lines("1.2.3.4" + strings.Repeat(",", 100_000)), "10.0.0.1"},
	{"xff", tp, lines("1.2.3.4, " + strings.Repeat("x", 100_000)), "10.0.0.1"},
	{"xff", tp, lines(strings.Repeat(" ", 100_000) + "1.2.3.4"), "1.2.3.4"},
	{"all4", tp, lines("9.9.9.9, 1.2.3.4"), "9.9.9.9"}, // if all addresses are trusted, the client can forge its own
	// Similar headers.
	{"real", tp, lines("1.2.3.4"), "1.2.3.4"},
	{"real", tp, lines("9.9.9.9", "1.2.3.4"), "1.2.3.4"},
	{"real", tp, lines("unknown"), "10.0.0.1"},
	{"real", "8.8.8.8:1", lines("1.2.3.4"), "8.8.8.8"},
	// Fixed number of hops.
	{"hop1", "8.8.8.8:1", lines("1.2.3.4"), "1.2.3.4"},
	{"hop1", "8.8.8.8:1", nil, "8.8.8.8"},
	{"hop1", "8.8.8.8:1", lines("9.9.9.9, 1.2.3.4"), "1.2.3.4"},
	{"hop1", "8.8.8.8:1", lines("9.9.9.9", "1.2.3.4"), "1.2.3.4"},
	{"hop1", "8.8.8.8:1", lines("1.2.3.4, unknown"), "8.8.8.8"},
	{"hop1", "@", lines("1.2.3.4"), "1.2.3.4"},
	{"hop1", "@", lines("unknown"), noAddr},
	{"hop2", "8.8.8.8:1", lines("9.9.9.9, 1.2.3.4, 7.7.7.7"), "1.2.3.4"},
	{"hop2", "8.8.8.8:1", lines("9.9.9.9", "1.2.3.4", "7.7.7.7"), "1.2.3.4"},
	{"hop2", "8.8.8.8:1", lines("1.2.3.4, unknown"), "1.2.3.4"}, // the entry of the inner proxy is skipped
	{"hop2", "8.8.8.8:1", lines("1.2.3.4"), "8.8.8.8"},          // too short: the request bypassed the outer proxy
	{"hop2", "8.8.8.8:1", lines("9.9.9.9, x, 7.7.7.7"), "8.8.8.8"},
	{"hop2tp", tp, lines("1.2.3.4, 7.7.7.7"), "1.2.3.4"},
	{"hop2tp", "8.8.8.8:1", lines("1.2.3.4, 7.7.7.7"), "8.8.8.8"},
	{"unix", "8.8.8.8:1", lines("1.2.3.4"), "8.8.8.8"},
	{"unix", "@", lines("1.2.3.4"), noAddr}, // RemoteAddr alone does not prove a Unix socket
}

// forwardedVectors have the header Forwarded of RFC 7239 from a trusted peer.
var forwardedVectors = []ipVector{
	{"fwd", tp, nil, "10.0.0.1"},
	{"fwd", tp, lines("for=1.2.3.4"), "1.2.3.4"},
	{"fwd", "8.8.8.8:443", lines("for=1.2.3.4"), "8.8.8.8"},
	{"fwd", tp, lines("For=1.2.3.4"), "1.2.3.4"},
	{"fwd", tp, lines(`for="1.2.3.4"`), "1.2.3.4"},
	{"fwd", tp, lines(`for="1.2.3.4:56789"`), "1.2.3.4"},
	{"fwd", tp, lines(`for="1.2.3.4:_port"`), "1.2.3.4"},
	{"fwd", tp, lines(`for="1.2.3.4:_"`), "10.0.0.1"},
	{"fwd", tp, lines(`for="[2001:db8::1]"`), "2001:db8::/64"},
	{"fwd", tp, lines(`for="[2001:db8::1]:4711"`), "2001:db8::/64"},
	{"fwd", tp, lines(`for="[::ffff:1.2.3.4]:4711"`), "1.2.3.4"},
	{"fwd", tp, lines(`for="\1.2.3\.4"`), "1.2.3.4"},
	{"fwd", tp, lines("for=1.2.3.4;proto=https;by=10.0.0.1"), "1.2.3.4"},
	{"fwd", tp, lines("proto=https;for=1.2.3.4; by=10.0.0.1"), "1.2.3.4"},
	{"fwd", tp, lines("by=10.0.0.1 ; for=1.2.3.4 "), "1.2.3.4"},
	{"fwd", tp, lines(";;for=1.2.3.4;"), "1.2.3.4"},
	{"fwd", tp, lines(`host="a,b;c";for=1.2.3.4`), "1.2.3.4"},
	{"fwd", tp, lines(`for=1.2.3.4;host="a,for=9.9.9.9"`), "1.2.3.4"},
	{"fwd", tp, lines(`for=1.2.3.4;host="a\",for=9.9.9.9"`), "1.2.3.4"},
	{"fwd", tp, lines(`for=1.2.3.4;host="a\\",for=9.9.9.9`), "9.9.9.9"},
	{"fwd", tp, lines(`for=1.2.3.4;host="a,for=9.9.9.9\"b"`), "1.2.3.4"},
	{"fwd", tp, lines(`for=1.2.3.4;host="a,for=9.9.9.9\\\"b"`), "1.2.3.4"},
	{"fwd", tp, lines(`for=1.2.3.4;host="for=9.9.9.9"`), "1.2.3.4"},
	{"fwd", tp, lines("for=9.9.9.9, for=1.2.3.4"), "1.2.3.4"},
	{"fwd", tp, lines("for=9.9.9.9", "for=1.2.3.4"), "1.2.3.4"},
	{"fwd", tp, lines("for=9.9.9.9, for=1.2.3.4, for=10.0.0.2;proto=http"), "1.2.3.4"},
	{"fwd", tp, lines("for=1.2.3.4, for=unknown, for=10.0.0.2"), "10.0.0.2"},
	{"fwd", tp, lines("for=1.2.3.4, for=_hidden"), "10.0.0.1"},
	{"fwd", tp, lines("for=unknown"), "10.0.0.1"},
	{"fwd", tp, lines("for=1.2.3.4, proto=https"), "10.0.0.1"},
	{"fwd", tp, lines("for=1.2.3.4;for=9.9.9.9"), "10.0.0.1"},
	{"fwd", tp, lines("for=1.2.3.4 9.9.9.9"), "10.0.0.1"},
	{"fwd", tp, lines("for = 1.2.3.4"), "10.0.0.1"},
	{"fwd", tp, lines("for="), "10.0.0.1"},
	{"fwd", tp, lines("for"), "10.0.0.1"},
	{"fwd", tp, lines(`for=""`), "10.0.0.1"},
	{"fwd", tp, lines(`for="1.2.3.4`), "10.0.0.1"},
	{"fwd", tp, lines(`for=1.2.3.4"`), "10.0.0.1"},
	{"fwd", tp, lines(`for="1.2.3.4\`), "10.0.0.1"},
	{"fwd", tp, lines(`for="1.2.3.4"x`), "10.0.0.1"},
	{"fwd", tp, lines("1.2.3.4"), "10.0.0.1"},
	// A quote that the client leaves open does not hide the entry that the proxy appends.
	{"fwd", tp, lines(`for="9.9.9.9, for=1.2.3.4`), "1.2.3.4"},
	{"fwd", tp, lines(`for="9.9.9.9`, `for=1.2.3.4`), "1.2.3.4"},
	{"fwd", tp, lines(`for=9.9.9.9;x="\, for=1.2.3.4`), "1.2.3.4"},
	{"fwd", tp, lines(`for="9.9.9.9, for="1.2.3.4:80"`), "1.2.3.4"},
	{"fwd", tp, lines(strings.Repeat("for=9.9.9.9,", 10_000) + "for=1.2.3.4"), "1.2.3.4"},
	{"fwd", tp, lines("for=1.2.3.4" + strings.Repeat(",for=10.0.0.2", 10_000)), "10.0.0.2"},
	{"fwd", tp, lines(`for=1.2.3.4, x="` + strings.Repeat(`\"`, 50_000) + `"`), "10.0.0.1"},
	{"hop1f", "8.8.8.8:1", lines("for=9.9.9.9, for=1.2.3.4"), "1.2.3.4"},
}

func TestByIP(t *testing.T) {
	total := 0
	for _, set := range [][]ipVector{peerVectors, xffVectors, forwardedVectors} {
		for i, v := range set {
			t.Run(fmt.Sprintf("%s/%d", v.way, i), func(t *testing.T) {
				if got := addressKey(t, v); got != v.want {
					t.Errorf("%s from %q with %.80q: key %q, want %q", v.way, v.peer, v.lines, got, v.want)
				}
			})
			total++
		}
	}
	if total < 120 {
		t.Errorf("%d vectors are fewer than 120", total)
	}
}

func addressKey(t *testing.T, v ipVector) string {
	t.Helper()
	header := headerOf[v.way]
	if header == "" {
		header = "X-Forwarded-For"
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = v.peer
	if v.lines != nil {
		r.Header[header] = v.lines
	}
	key, err := ways[v.way](r)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// TestByIPOtherHeaders: only the configured header is read, under exactly its name.
func TestByIPOtherHeaders(t *testing.T) {
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = tp
	for _, name := range []string{"X_Forwarded_For", "X-Real-Ip", "Forwarded", "True-Client-Ip", "Cf-Connecting-Ip", "X-Client-Ip"} {
		r.Header[name] = []string{"9.9.9.9"}
	}
	if key, _ := ways["xff"](r); key != "10.0.0.1" {
		t.Errorf("key %q, want the peer's", key)
	}
}

func TestByIPUnixSocket(t *testing.T) {
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "@"
	r.Header["X-Forwarded-For"] = []string{"9.9.9.9, 1.2.3.4"}
	r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.UnixAddr{Name: "/run/x", Net: "unix"}))
	if key, _ := ways["unix"](r); key != "1.2.3.4" {
		t.Errorf("key %q, want the address in the trusted peer's header", key)
	}
	if key, _ := ways["xff"](r); key != noAddr {
		t.Errorf("key %q for an untrusted Unix peer, want %q", key, noAddr)
	}
	r.Header["X-Forwarded-For"] = []string{"unknown"}
	if key, _ := ways["unix"](r); key != noAddr {
		t.Errorf("key %q for an unknown client, want %q", key, noAddr)
	}
}

// TestByIPRotation: all addresses of a /64 share one bucket.
func TestByIPRotation(t *testing.T) {
	base := netip.MustParseAddr("2001:db8:5:6::").As16()
	keys := map[string]bool{}
	r := httptest.NewRequest("GET", "/", nil)
	for i := range 100_000 {
		a := base
		a[8], a[13], a[14], a[15] = byte(i*7), byte(i>>16), byte(i>>8), byte(i)
		r.RemoteAddr = netip.AddrPortFrom(netip.AddrFrom16(a), 443).String()
		key, _ := ways["peer"](r)
		keys[key] = true
	}
	if len(keys) != 1 {
		t.Errorf("%d keys for one /64, want 1", len(keys))
	}
}

func TestByIPWrongUse(t *testing.T) {
	for name, f := range map[string]func(){
		"invalid prefix":     func() { httplimit.ByIP(httplimit.TrustedProxies(netip.Prefix{})) },
		"bits":               func() { httplimit.IPv6PrefixBits(0) },
		"bits too many":      func() { httplimit.IPv6PrefixBits(129) },
		"no hops":            func() { httplimit.ProxyHops(0) },
		"too many hops":      func() { httplimit.ProxyHops(65) },
		"no header":          func() { httplimit.ClientIPHeader("") },
		"header never read":  func() { httplimit.ByIP(httplimit.ClientIPHeader("X-Real-Ip")) },
		"empty header name":  func() { httplimit.ByHeader("") },
		"nil function":       func() { httplimit.ByFunc(nil) },
		"nil key to combine": func() { httplimit.Combine(nil) },
	} {
		mustPanic(t, name, f)
	}
}

func mustPanic(t *testing.T, name string, f func()) {
	t.Helper()
	defer func() {
		if msg := fmt.Sprint(recover()); !strings.HasPrefix(msg, "httplimit: ") {
			t.Errorf("%s: panicked with %q, want a message from httplimit", name, msg)
		}
	}()
	f()
}
