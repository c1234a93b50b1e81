package keyenc_test

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluiceproject/sluice/internal/keyenc"
)

// An encoded value decodes to itself and its kind.
func TestRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.SampledFrom([]string{"", "\x00", "\x00-", "\x00?", "\x00=", "\x00+", "\x00#", "\x00=\x00"}), rapid.String())
		values := rapid.SliceOfN(text, 0, 5).Draw(t, "values")
		parts, ok := keyenc.Split(keyenc.Join(values...))
		if !ok || len(parts) != len(values) {
			t.Fatalf("%q is split into %q, %v", values, parts, ok)
		}
		for i, part := range parts {
			if got, kind, ok := keyenc.Read(part); !ok || kind != keyenc.IsValue || got != values[i] {
				t.Fatalf("%q is read as %q, %v, %v", values[i], got, kind, ok)
			}
		}
		whole := text.Draw(t, "anything") // decoded or not, it must not panic
		if parts, ok := keyenc.Split(whole); ok {
			b := keyenc.AppendSeveral(nil)
			for _, p := range parts {
				b = keyenc.AppendPart(b, p)
			}
			if again, ok := keyenc.Split(string(b)); !ok || !slices.Equal(again, parts) {
				t.Fatalf("%q is split into %q and then %q", whole, parts, again)
			}
		}
	})
	for part, want := range map[string]keyenc.Kind{
		keyenc.Absent: keyenc.IsAbsent, keyenc.NoAddr: keyenc.IsNoAddr, string(keyenc.AppendDigest(nil, []byte("sum"))): keyenc.IsDigest,
		string(keyenc.AppendAddr(nil, netip.Addr{}, 64)): keyenc.IsNoAddr,
	} {
		if _, kind, ok := keyenc.Read(part); !ok || kind != want {
			t.Errorf("%q is read as %v, %v, want %v", part, kind, ok, want)
		}
	}
	for _, part := range []string{"\x00", "\x00=", "\x00=a", "\x00#", "\x00+", "\x00-x", "\x00x"} {
		if got, _, ok := keyenc.Read(part); ok {
			t.Errorf("%q is read as %q", part, got)
		}
	}
}
