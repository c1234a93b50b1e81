package httplimit_test

import (
	"net/netip"
	"testing"
)

// FuzzClientIP: for any header, the key is an address, a prefix or the key of peers without an address. An untrusted peer
// gets its own key, and the entry that a trusted proxy appends determines the key.
func FuzzClientIP(f *testing.F) {
	for _, set := range [][]ipVector{peerVectors, xffVectors, forwardedVectors} {
		for _, v := range set {
			line := append(append([]string{}, v.lines...), "", "")
			f.Add(v.peer, line[0][:min(len(line[0]), 2000)], line[1])
		}
	}
	f.Fuzz(func(t *testing.T, peer, first, second string) {
		all := []string{first, second}
		own := addressKey(t, ipVector{"peer", peer, nil, ""})
		for way := range ways {
			checkAddressKey(t, way, addressKey(t, ipVector{way, peer, all, ""}))
		}
		if got := addressKey(t, ipVector{"peer", peer, all, ""}); got != own {
			t.Errorf("key %q of peer %q, with headers %q", own, peer, got)
		}
		for _, way := range []string{"xff", "fwd", "real", "hop2tp"} {
			if got := addressKey(t, ipVector{way, "203.0.113.9:1", all, ""}); got != "203.0.113.9" {
				t.Errorf("%s: an untrusted peer has key %q", way, got)
			}
		}
		for way, entry := range map[string]string{"xff": "203.0.113.7", "fwd": "for=203.0.113.7", "hop1": "203.0.113.7"} {
			for _, l := range [][]string{{first + ", " + entry}, {first, second + "," + entry}, {first, second, entry}} {
				if got := addressKey(t, ipVector{way, tp, l, ""}); got != "203.0.113.7" {
					t.Errorf("%s: %q has key %q, want the appended address", way, l, got)
				}
			}
		}
	})
}

func checkAddressKey(t *testing.T, way, key string) {
	t.Helper()
	if key == noAddr {
		return
	}
	if a, err := netip.ParseAddr(key); err == nil {
		if a.String() != key || a.Is4In6() || a.Zone() != "" {
			t.Errorf("%s: key %q is not canonical", way, key)
		}
		return
	}
	p, err := netip.ParsePrefix(key)
	if err != nil || p.String() != key || p.Masked() != p || p.Addr().Is4() || p.Addr().Is4In6() {
		t.Errorf("%s: key %q is not an IPv6 prefix: %v", way, key, err)
	}
}
