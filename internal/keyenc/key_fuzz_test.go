package keyenc_test

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/sluiceproject/sluice/internal/keyenc"
)

// FuzzJoin checks that lists of up to three values share a key only if they are equal.
func FuzzJoin(f *testing.F) {
	for _, pair := range pairs {
		a, b := append(pair[0], "", "", ""), append(pair[1], "", "", "")
		f.Add(a[0], a[1], a[2], byte(len(pair[0])), b[0], b[1], b[2], byte(len(pair[1])))
	}
	f.Fuzz(func(t *testing.T, a0, a1, a2 string, aLen byte, b0, b1, b2 string, bLen byte) {
		a, b := []string{a0, a1, a2}[:aLen%4], []string{b0, b1, b2}[:bLen%4]
		ka, kb := keyenc.Join(a...), keyenc.Join(b...)
		if slices.Equal(a, b) != (ka == kb) {
			t.Errorf("%q has the key %q and %q has %q", a, ka, b, kb)
		}
		if got, ok := read(ka); !ok || !reflect.DeepEqual(got, several(a...)) {
			t.Errorf("%q has the key %q, which reads %v, %v", a, ka, got, ok)
		}
		if (keyenc.Value(a0) == keyenc.Value(b0)) != (a0 == b0) || keyenc.Value(a0) == kb || keyenc.Value(kb) == kb {
			t.Errorf("the value %q has the key %q, %q has %q, and the list %q has %q",
				a0, keyenc.Value(a0), b0, keyenc.Value(b0), b, kb)
		}
	})
}

// FuzzRead starts from the key: if a text can be read as a key, writing the result yields the same text.
func FuzzRead(f *testing.F) {
	for _, pair := range pairs {
		f.Add(keyenc.Join(pair[0]...))
	}
	for _, k := range []string{"\x00", "\x00=\x00", "\x00=a", "\x00#a", "\x00-", "\x00?", "\x00+\x81\x00a", "\x00+\xff"} {
		f.Add(k)
	}
	f.Fuzz(func(t *testing.T, k string) {
		if p, ok := read(k); ok && p.write() != k {
			t.Errorf("%q reads %v, which has the key %q", k, p, p.write())
		}
	})
}

// FuzzAddr checks that the key of an address names exactly the addresses that share it.
func FuzzAddr(f *testing.F) {
	for _, s := range subscribers {
		if a, err := netip.ParseAddr(s.addr); err == nil {
			f.Add(a.AsSlice(), byte(s.bits-32))
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte, bits byte) {
		a, ok := netip.AddrFromSlice(raw)
		wide := 32 + int(bits)%97
		k := string(keyenc.AppendAddr(nil, a, wide))
		if !ok {
			if k != keyenc.NoAddr {
				t.Errorf("no address has the key %q", k)
			}
			return
		}
		a = a.Unmap()
		p := keyenc.Subscriber(a, wide)
		if !p.Contains(a) || p != p.Masked() || p.Bits() > wide && !p.IsSingleIP() {
			t.Errorf("%v by %d bits is %v", a, wide, p)
		}
		want := p.String()
		if p.IsSingleIP() {
			want = p.Addr().String()
		}
		if k != want {
			t.Errorf("%v by %d bits is %v and has the key %q", a, wide, p, k)
		}
		raw = a.AsSlice()
		raw[len(raw)-1] ^= 1
		beside, _ := netip.AddrFromSlice(raw)
		if other := string(keyenc.AppendAddr(nil, beside, wide)); p.Contains(beside) != (other == k) {
			t.Errorf("%v has the key %q, and %v next to it has %q", a, k, beside, other)
		}
		if z := a.WithZone("z"); string(keyenc.AppendAddr(nil, z, wide)) != k {
			t.Errorf("%v does not share the key %q of %v", z, k, a)
		}
	})
}
