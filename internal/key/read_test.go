package key_test

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluiceproject/sluice/internal/key"
)

// What was written is read again, and tells what it is.
func TestRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.SampledFrom([]string{"", "\x00", "\x00-", "\x00?", "\x00=", "\x00+", "\x00#", "\x00=\x00"}), rapid.String())
		values := rapid.SliceOfN(text, 0, 5).Draw(t, "values")
		parts, ok := key.Split(key.Join(values...))
		if !ok || len(parts) != len(values) {
			t.Fatalf("%q is split into %q, %v", values, parts, ok)
		}
		for i, part := range parts {
			if got, kind, ok := key.Read(part); !ok || kind != key.IsValue || got != values[i] {
				t.Fatalf("%q is read as %q, %v, %v", values[i], got, kind, ok)
			}
		}
		whole := text.Draw(t, "anything") // is read or not, and does no harm
		if parts, ok := key.Split(whole); ok {
			b := key.AppendSeveral(nil)
			for _, p := range parts {
				b = key.AppendPart(b, p)
			}
			if again, ok := key.Split(string(b)); !ok || !slices.Equal(again, parts) {
				t.Fatalf("%q is split into %q and then %q", whole, parts, again)
			}
		}
	})
	for part, want := range map[string]key.Kind{
		key.Absent: key.IsAbsent, key.NoAddr: key.IsNoAddr, string(key.AppendDigest(nil, []byte("sum"))): key.IsDigest,
		string(key.AppendAddr(nil, netip.Addr{}, 64)): key.IsNoAddr,
	} {
		if _, kind, ok := key.Read(part); !ok || kind != want {
			t.Errorf("%q is read as %v, %v, want %v", part, kind, ok, want)
		}
	}
	for _, part := range []string{"\x00", "\x00=", "\x00=a", "\x00#", "\x00+", "\x00-x", "\x00x"} {
		if got, _, ok := key.Read(part); ok {
			t.Errorf("%q is read as %q", part, got)
		}
	}
}
