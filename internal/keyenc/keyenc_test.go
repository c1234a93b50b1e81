package keyenc_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluiceproject/sluice/internal/keyenc"
)

// part is the decoded form of a key. Because every key can be decoded, no two parts share one.
type part struct {
	kind  byte // the byte after the NUL, or 0 for a value
	text  string
	parts []part // of a key of several
}

func (p part) String() string { return fmt.Sprintf("%q %q %v", p.kind, p.text, p.parts) }

// write returns the key of a part.
func (p part) write() string {
	switch p.kind {
	case '-':
		return keyenc.Absent
	case '?':
		return keyenc.NoAddr
	case '#':
		return string(keyenc.AppendDigest(nil, []byte(p.text)))
	case '+':
		b := keyenc.AppendSeveral(nil)
		for _, inner := range p.parts {
			b = keyenc.AppendPart(b, inner.write())
		}
		return string(b)
	}
	return keyenc.Value(p.text)
}

// read is the inverse of write. ok is false for a text that no part encodes to.
func read(k string) (p part, ok bool) {
	if !strings.HasPrefix(k, "\x00") {
		return part{text: k}, true
	}
	if len(k) < 2 {
		return part{}, false
	}
	switch kind, rest := k[1], k[2:]; kind {
	case '=':
		return part{text: rest}, strings.HasPrefix(rest, "\x00")
	case '-', '?':
		return part{kind: kind}, rest == ""
	case '#':
		return part{kind: kind, text: rest}, true
	case '+':
		p = part{kind: kind}
		for rest != "" {
			n, width := binary.Uvarint([]byte(rest))
			// A length has only one encoding, so that keys and their decoded forms correspond one to one.
			if width <= 0 || len(binary.AppendUvarint(nil, n)) != width || n > uint64(len(rest)-width) {
				return part{}, false
			}
			inner, ok := read(rest[width:][:n])
			if !ok {
				return part{}, false
			}
			p.parts, rest = append(p.parts, inner), rest[width:][n:]
		}
		return p, true
	}
	return part{}, false
}

func several(values ...string) part {
	p := part{kind: '+'}
	for _, v := range values {
		p.parts = append(p.parts, part{text: v})
	}
	return p
}

// pairs are lists of values that would collide if joined by a separator, without lengths or without marks.
var pairs = [][2][]string{
	{{}, {""}},
	{{""}, {"", ""}},
	{{"a"}, {"a", ""}},
	{{"a"}, {"", "a"}},
	{{"a", ""}, {"", "a"}},
	{{"a", "b"}, {"b", "a"}},
	{{"a", "b"}, {"ab"}},
	{{"a", "b"}, {"ab", ""}},
	{{"ab", "c"}, {"a", "bc"}},
	{{"a", "b", "c"}, {"a", "bc"}},
	{{"a:b", "c"}, {"a", "b:c"}},
	{{"a|b"}, {"a", "b"}},
	{{"a|", "b"}, {"a", "|b"}},
	{{"a,b"}, {"a", "b"}},
	{{"a/b", "c"}, {"a", "b/c"}},
	{{"a b"}, {"a", "b"}},
	{{"a\r\nb"}, {"a", "b"}},
	{{"a\r\n", "b"}, {"a", "\r\nb"}},
	{{"a\n"}, {"a\r\n"}},
	{{"{a}", "b"}, {"{a}b"}},
	{{"{", "a}"}, {"{a", "}"}},
	{{"{a}{b}"}, {"{a}", "{b}"}},
	{{"a\x00b"}, {"a", "b"}},
	{{"a\x00", "b"}, {"a", "\x00b"}},
	{{"\x00"}, {""}},
	{{"\x00"}, {"\x00\x00"}},
	{{"\x00", ""}, {"", "\x00"}},
	{{"\x00="}, {"\x00"}},
	{{"\x00=\x00"}, {"\x00"}},
	{{"\x00=a"}, {"a"}},
	{{"\x00-"}, {"-"}},
	{{"\x00-"}, {"\x00?"}},
	{{"\x00+"}, {}},
	{{"\x00+\x01a"}, {"a"}},
	{{"\x00#a"}, {"a"}},
	{{"\x01a"}, {"a"}},
	{{"\x01a", "b"}, {"a", "\x01b"}},
	{{"a\x01b"}, {"a", "b"}},
	{{"\x03a\x01b"}, {"a", "b"}},
	{{"\x00a"}, {"", "a"}},
	{{"\x80\x01"}, {"\x80", "\x01"}},
	{{strings.Repeat("a", 127)}, {strings.Repeat("a", 128)}},
	{{strings.Repeat("a", 128)}, {"\x01" + strings.Repeat("a", 127)}},
	{{strings.Repeat("a", 1<<14)}, {strings.Repeat("a", 1<<14-1), "a"}},
	{{"é"}, {"e\u0301"}},
	{{"\xc3", "\xa9"}, {"é"}},
	{{"A"}, {"a"}},
}

func TestJoinPairs(t *testing.T) {
	for _, pair := range pairs {
		a, b := keyenc.Join(pair[0]...), keyenc.Join(pair[1]...)
		if a == b {
			t.Errorf("%.80q and %.80q have the same key %.80q", pair[0], pair[1], a)
		}
		for i, k := range []string{a, b} {
			if got, ok := read(k); !ok || !reflect.DeepEqual(got, several(pair[i]...)) {
				t.Errorf("the key %.80q of %.80q reads %.80v, %v", k, pair[i], got, ok)
			}
		}
	}
}

// TestKinds checks that a value never has the key of another kind, even if it looks like one.
func TestKinds(t *testing.T) {
	keys := map[string]string{
		keyenc.Absent:                                 "absent",
		keyenc.NoAddr:                                 "no address",
		string(keyenc.AppendDigest(nil, nil)):         "empty digest",
		string(keyenc.AppendDigest(nil, []byte("a"))): "digest of one byte",
		string(keyenc.AppendSeveral(nil)):             "several of none",
		keyenc.Join(""):                               "several of an empty value",
		keyenc.Join("a"):                              "several of one",
		string(keyenc.AppendPart(keyenc.AppendSeveral(nil), keyenc.Absent)): "several of an absent value",
	}
	spelt := []string{"", "a", "-", "\x00", "\x00="}
	for k := range keys {
		spelt = append(spelt, k, "\x00="+k, keyenc.Value(keyenc.Value(k)))
	}
	slices.Sort(spelt)
	for _, s := range slices.Compact(spelt) {
		k := keyenc.Value(s)
		if other, dup := keys[k]; dup {
			t.Errorf("the value %q has the key %q, which is that of %s", s, k, other)
		}
		keys[k] = fmt.Sprintf("the value %q", s)
		if got := string(keyenc.AppendValue([]byte("x"), s)); got != "x"+k {
			t.Errorf("AppendValue appends %q for %q, want %q", got, s, k)
		}
	}
	if got := keyenc.Value("alice"); got != "alice" {
		t.Errorf("the key of alice is %q, which an operator cannot write", got)
	}
}

// TestAppendPart checks that strings and bytes are encoded alike, after existing bytes.
func TestAppendPart(t *testing.T) {
	for _, s := range []string{"", "a", "\x00-", strings.Repeat("a", 127), strings.Repeat("a", 128)} {
		want := "x" + string(binary.AppendUvarint(nil, uint64(len(s)))) + s
		if got := string(keyenc.AppendPart([]byte("x"), s)); got != want {
			t.Errorf("%.20q of %d bytes is written %.20q, want %.20q", s, len(s), got, want)
		}
		if got := string(keyenc.AppendBytes([]byte("x"), []byte(s))); got != want {
			t.Errorf("%.20q of %d bytes is written %.20q as bytes, want %.20q", s, len(s), got, want)
		}
	}
}

// TestInjective decodes encoded keys, including values that look like keys and keys inside keys.
func TestInjective(t *testing.T) {
	piece := rapid.SampledFrom([]string{
		"\x00", "\x00-", "\x00?", "\x00=", "\x00+", "\x00#", "\x01", "\x02", "\x7f", "\x80", "\x80\x01", "\xff", "a", "b",
		"", "{", "}", ":", "|", "/", "\r\n", "é", strings.Repeat("a", 127), strings.Repeat("b", 128),
	})
	text := rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(piece, 0, 4).Draw(t, "pieces"), "")
	})
	values := rapid.SliceOfN(text, 0, 5)
	leaf := rapid.OneOf(
		rapid.Just(part{kind: '-'}),
		rapid.Just(part{kind: '?'}),
		rapid.Custom(func(t *rapid.T) part { return part{kind: '#', text: text.Draw(t, "digest")} }),
		rapid.Custom(func(t *rapid.T) part { return part{text: text.Draw(t, "value")} }),
		rapid.Custom(func(t *rapid.T) part { return several(values.Draw(t, "values")...) }),
	)
	anyPart := rapid.OneOf(leaf, rapid.Custom(func(t *rapid.T) part {
		return part{kind: '+', parts: append([]part(nil), rapid.SliceOfN(leaf, 0, 4).Draw(t, "parts")...)}
	}))
	rapid.Check(t, func(t *rapid.T) {
		p := anyPart.Draw(t, "part")
		k := p.write()
		if got, ok := read(k); !ok || !reflect.DeepEqual(got, p) {
			t.Fatalf("%v has the key %q, which reads %v, %v", p, k, got, ok)
		}
		a, b := values.Draw(t, "a"), values.Draw(t, "b")
		if slices.Equal(a, b) != (keyenc.Join(a...) == keyenc.Join(b...)) {
			t.Fatalf("%q has the key %q and %q has %q", a, keyenc.Join(a...), b, keyenc.Join(b...))
		}
		if k, v := keyenc.Join(a...), keyenc.Value(strings.Join(b, "")); k == v || keyenc.Value(k) == k {
			t.Fatalf("the values %q and the value %q have the key %q", a, strings.Join(b, ""), k)
		}
	})
}

var subscribers = []struct {
	addr   string
	bits   int
	prefix string // empty: no prefix
	key    string
}{
	{"", 64, "", keyenc.NoAddr},
	{"192.0.2.1", 64, "192.0.2.1/32", "192.0.2.1"},
	{"192.0.2.1", 32, "192.0.2.1/32", "192.0.2.1"},
	{"192.0.2.1", 128, "192.0.2.1/32", "192.0.2.1"},
	{"0.0.0.0", 64, "0.0.0.0/32", "0.0.0.0"},

	// IPv4 written as IPv6 is IPv4; an address that only looks like it is not.
	{"::ffff:192.0.2.1", 64, "192.0.2.1/32", "192.0.2.1"},
	{"::ffff:c000:201", 32, "192.0.2.1/32", "192.0.2.1"},
	{"::ffff:192.0.2.1%eth0", 128, "192.0.2.1/32", "192.0.2.1"},
	{"::192.0.2.1", 64, "::/64", "::/64"},
	{"::ffff:0:192.0.2.1", 64, "::/64", "::/64"},

	{"2001:db8:1:2:3:4:5:6", 32, "2001:db8::/32", "2001:db8::/32"},
	{"2001:db8:1:2:3:4:5:6", 48, "2001:db8:1::/48", "2001:db8:1::/48"},
	{"2001:db8:1:ffff:3:4:5:6", 56, "2001:db8:1:ff00::/56", "2001:db8:1:ff00::/56"},
	{"2001:db8:1:2:3:4:5:6", 64, "2001:db8:1:2::/64", "2001:db8:1:2::/64"},
	{"2001:db8:1:2:ffff:4:5:6", 65, "2001:db8:1:2:8000::/65", "2001:db8:1:2:8000::/65"},
	{"2001:db8:1:2:3:4:5:7", 127, "2001:db8:1:2:3:4:5:6/127", "2001:db8:1:2:3:4:5:6/127"},
	{"2001:db8:1:2:3:4:5:7", 128, "2001:db8:1:2:3:4:5:7/128", "2001:db8:1:2:3:4:5:7"},
	{"2001:DB8:0:0::1", 64, "2001:db8::/64", "2001:db8::/64"},
	{"::", 64, "::/64", "::/64"},
	{"::1", 128, "::1/128", "::1"},

	// The writer of an address can choose any zone.
	{"fe80::1%eth0", 64, "fe80::/64", "fe80::/64"},
	{"fe80::1%eth0", 128, "fe80::1/128", "fe80::1"},
	{"fe80::1%\x00-", 128, "fe80::1/128", "fe80::1"},

	// 6to4: 48 bits belong to one IPv4 address.
	{"2002:c000:201:ffff::1", 32, "2002:c000::/32", "2002:c000::/32"},
	{"2002:c000:201:ffff::1", 48, "2002:c000:201::/48", "2002:c000:201::/48"},
	{"2002:c000:201:ffff::1", 64, "2002:c000:201::/48", "2002:c000:201::/48"},
	{"2002:c000:201:ffff::1", 128, "2002:c000:201::/48", "2002:c000:201::/48"},
	{"2003:c000:201:ffff::1", 64, "2003:c000:201:ffff::/64", "2003:c000:201:ffff::/64"},

	// NAT64: the last 32 bits of one /96 are the IPv4 addresses of different clients.
	{"64:ff9b::192.0.2.1", 32, "64:ff9b::c000:201/128", "64:ff9b::c000:201"},
	{"64:ff9b::192.0.2.1", 64, "64:ff9b::c000:201/128", "64:ff9b::c000:201"},
	{"64:ff9b::192.0.2.1", 128, "64:ff9b::c000:201/128", "64:ff9b::c000:201"},
	{"64:ff9b::1:c000:201", 64, "64:ff9b::/64", "64:ff9b::/64"},
	{"64:ff9b:1::192.0.2.1", 64, "64:ff9b:1::/64", "64:ff9b:1::/64"},

	// With an invalid number of bits each address is its own subscriber.
	{"2001:db8::1", 129, "2001:db8::1/128", "2001:db8::1"},
	{"2001:db8::1", -1, "2001:db8::1/128", "2001:db8::1"},
	{"192.0.2.1", -1, "192.0.2.1/32", "192.0.2.1"},
}

func TestSubscriber(t *testing.T) {
	for _, tt := range subscribers {
		a, want := netip.Addr{}, netip.Prefix{}
		if tt.addr != "" {
			a, want = netip.MustParseAddr(tt.addr), netip.MustParsePrefix(tt.prefix)
		}
		if got := keyenc.Subscriber(a, tt.bits); got != want {
			t.Errorf("%q by %d bits is %v, want %v", tt.addr, tt.bits, got, want)
		}
		if got := string(keyenc.AppendAddr([]byte("x"), a, tt.bits)); got != "x"+tt.key {
			t.Errorf("%q by %d bits has the key %q, want %q", tt.addr, tt.bits, got[1:], tt.key)
		}
	}
}

// TestAllocations checks that nothing is allocated if the buffer is large enough.
func TestAllocations(t *testing.T) {
	room := make([]byte, 0, 256)
	text, sum := "alice", []byte("0123456789abcdef")
	v4, mapped := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("::ffff:192.0.2.1")
	v6, zoned := netip.MustParseAddr("2001:db8:1:2:3:4:5:6"), netip.MustParseAddr("fe80::1%eth0")
	for name, f := range map[string]func() []byte{
		"value":      func() []byte { return append(room, keyenc.Value(text)...) },
		"append":     func() []byte { return keyenc.AppendValue(room, text) },
		"marked":     func() []byte { return keyenc.AppendValue(room, "\x00"+text) },
		"digest":     func() []byte { return keyenc.AppendDigest(room, sum) },
		"parts":      func() []byte { return keyenc.AppendBytes(keyenc.AppendPart(keyenc.AppendSeveral(room), text), sum) },
		"v4":         func() []byte { return keyenc.AppendAddr(room, v4, 64) },
		"mapped":     func() []byte { return keyenc.AppendAddr(room, mapped, 64) },
		"v6":         func() []byte { return keyenc.AppendAddr(room, v6, 64) },
		"v6 whole":   func() []byte { return keyenc.AppendAddr(room, v6, 128) },
		"zoned":      func() []byte { return keyenc.AppendAddr(room, zoned, 64) },
		"no address": func() []byte { return keyenc.AppendAddr(room, netip.Addr{}, 64) },
	} {
		if len(f()) == 0 {
			t.Errorf("%s: nothing was written, so nothing was measured", name)
		}
		if n := testing.AllocsPerRun(100, func() { f() }); n != 0 {
			t.Errorf("%s: %v allocations, want none", name, n)
		}
	}
}
