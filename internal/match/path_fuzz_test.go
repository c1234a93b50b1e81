package match_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/sluiceproject/sluice/internal/match"
)

// FuzzCanonicalPath checks that any path is either rejected or has a canonical form that stays the same when it is
// forwarded and read again, here or by the standard library.
func FuzzCanonicalPath(f *testing.F) {
	for _, group := range pathGroups {
		for _, s := range group.spellings {
			if len(s[0]) < 400 { // long ones only slow down the mutations
				f.Add(s[0])
			}
		}
	}
	f.Fuzz(func(t *testing.T, sent string) {
		got, err := match.CanonicalPath(sent)
		if err != nil {
			if !errors.Is(err, match.ErrAmbiguousPath) || got != "" {
				t.Errorf("%q is rejected with %v, and gives %q", sent, err, got)
			}
			return
		}
		checkCanonical(t, got)
		if again, err := match.CanonicalPath(got); match.EscapePath(got) == got && (again != got || err != nil) {
			t.Errorf("%q has nothing to escape, and gives %q and %v", got, again, err)
		}
	})
}

// checkCanonical checks the properties of every canonical path.
func checkCanonical(t *testing.T, path string) {
	t.Helper()
	if !strings.HasPrefix(path, "/") || path != "/" && strings.HasSuffix(path, "/") || len(path) > match.MaxPathBytes {
		t.Errorf("%q has no leading slash, a trailing slash, or is too long", path)
	}
	if path != "/" {
		segments := strings.Split(path[1:], "/")
		for _, s := range segments {
			if s == "" || s == "." || s == ".." {
				t.Errorf("%q has a segment %q", path, s)
			}
		}
		if len(segments) > 256 {
			t.Errorf("%q has %d segments", path, len(segments))
		}
	}
	if strings.ContainsAny(path, `\;`) || strings.ContainsFunc(path, unicode.IsControl) {
		t.Errorf("%q has a backslash, a semicolon or a control character", path)
	}
	if !utf8.ValidString(path) || !norm.NFC.IsNormalString(path) {
		t.Errorf("%q is not UTF-8 in normalization form C", path)
	}
	checkEscaped(t, path)
}

// checkEscaped checks that the forwarded path is read as the path that was matched.
func checkEscaped(t *testing.T, path string) {
	t.Helper()
	escaped := match.EscapePath(path)
	if again, err := match.CanonicalPath(escaped); again != path || err != nil {
		t.Errorf("%q is escaped to %q, which gives %q and %v", path, escaped, again, err)
	}
	if u, err := url.ParseRequestURI(escaped); err != nil || u.Path != path || u.RawQuery != "" || u.Host != "" {
		t.Errorf("%q is escaped to %q, which net/url reads as %+v, %v", path, escaped, u, err)
	}
	for _, c := range []byte(escaped) {
		if c <= ' ' || c >= 0x7f {
			t.Errorf("%q is escaped to %q, which has a byte that cannot be sent", path, escaped)
		}
	}
}
