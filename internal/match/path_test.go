package match_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"unicode"

	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"

	"github.com/sluiceproject/sluice/internal/match"
)

// rejected marks a path without a canonical form.
const rejected = ""

// pathGroups are spellings of paths, grouped by the attack they serve: each is either read as the path next to it or
// rejected. If a spelling bypassed a real product, the comment says how.
var pathGroups = []struct {
	threat    string
	spellings [][2]string // as sent, and canonical
}{
	{"none", [][2]string{
		{"/", "/"},
		{"/posts", "/posts"},
		{"/posts/7/comments", "/posts/7/comments"},
		{"/a-b_c~d.e", "/a-b_c~d.e"},
		{"/!$&'()*+,=:@", "/!$&'()*+,=:@"},
		{"/.well-known/x", "/.well-known/x"},
		{"/v1/users:batchGet", "/v1/users:batchGet"},
		{"/a+b", "/a+b"}, // a plus is a space in queries only
		{"/*", "/*"},
	}},
	{"dots", [][2]string{
		{"/./posts", "/posts"},
		{"/posts/.", "/posts"},
		{"/posts/./", "/posts"},
		{"/.", "/"},
		{"/x/../posts", "/posts"},
		{"/posts/..", "/"},
		{"/posts/x/../../posts/", "/posts"},
		{"/x/%2e%2e/posts", "/posts"}, // a file server checked for ".." before it decoded, and served any file
		{"/x/%2E%2e/posts", "/posts"},
		{"/x/.%2e/posts", "/posts"}, // the first remedy for that looked for "%2e%2e" and for "..", not for a mixture
		{"/x/%2e./posts", "/posts"},
		{"/%2e/posts", "/posts"},
		{"/posts/%2e", "/posts"},
		{"/...", rejected},
		{"/.../posts", rejected},
		{"/..posts", "/..posts"},
		{"/posts..", "/posts.."},
		{"/.posts", "/.posts"},
		{"/posts.", "/posts."},
		{"/..", rejected},
		{"/../posts", rejected},
		{"/x/../../posts", rejected},
		{"/%2e%2e/posts", rejected},
		{"/./../posts", rejected},
		{"/posts/../../posts", rejected},
		{"/x/..%2fposts", rejected},
		{"/x/..\\posts", rejected},
	}},
	{"slashes", [][2]string{
		{"//", "/"},
		{"///", "/"},
		{"//posts", "/posts"}, // a proxy compared prefixes with "//admin" and the application served "/admin"
		{"/posts//7", "/posts/7"},
		{"/posts///7//", "/posts/7"},
		{"/x//../posts", "/posts"}, // ".." removes /x, not the empty segment
		{"/.//posts", "/posts"},
		{"//example.com/posts", "/example.com/posts"}, // not a host, though a URL parser may think so
		{"/http://example.com/", "/http:/example.com"},
		{"/x%2fposts", rejected},
		{"/x%2Fposts", rejected},
		{"/%2fposts", rejected},
		{"/posts%2f", rejected},
		{"/x\\posts", rejected}, // a proxy matched one segment, and the application, on Windows, served two
		{"/x%5cposts", rejected},
		{"/x%5Cposts", rejected},
		{"/\\posts", rejected},
		{"/..%5c..%5cposts", rejected},
	}},
	{"names that some servers take for others", [][2]string{
		{"/posts%2e", "/posts."},
		{"/posts./", "/posts."},
		{"/posts./7", "/posts./7"},
		{"/posts%20", "/posts "},
		{"/posts ", "/posts "},
		{"/posts%20.", "/posts ."},
		{"/posts%20/7", "/posts /7"},
		{"/%20posts", "/ posts"},
		{"/%20", rejected},
		{"/%20.", rejected},
		{"/.%20.", rejected},
		{"/posts%c2%a0", rejected},
		{"/posts%c2%a0.", rejected},
		{"/%e3%80%80posts", rejected},
		{"/%20%c2%a0posts", rejected},
		{"/posts%20;v=1", "/posts "},
		{"/posts::$DATA", rejected},
		{"/posts::%24INDEX_ALLOCATION/7", rejected},
		{"/posts:$I30:$INDEX_ALLOCATION", rejected},
		{"/posts.html", "/posts.html"},
		{"/posts:$", rejected},
		{"/posts:$.", rejected},
		{"/posts:a$b", "/posts:a$b"},
		{"/pos%20ts", "/pos ts"},
	}},
	{"escapes", [][2]string{
		{"/%70osts", "/posts"},
		{"/%70%6f%73%74%73", "/posts"},
		{"/%70%6F%73%74%73", "/posts"},
		{"/p%6Fsts/%37", "/posts/7"},
		{"/a%20b", "/a b"},
		{"/a b", "/a b"},
		{"/a%2bb", "/a+b"},
		{"/a%3fb", "/a?b"},
		{"/a%23b", "/a#b"},
		{"/a%3Db%26c", "/a=b&c"},
		{"/a%22%3c%3e%5b%5d%5e%60%7b%7c%7d", "/a\"<>[]^`{|}"},
		{"/a\"<>[]^`{|}", "/a\"<>[]^`{|}"},
		{"/%7Euser", "/~user"},
		{"/%", rejected},
		{"/%4", rejected},
		{"/posts%", rejected},
		{"/posts%7", rejected},
		{"/%zz", rejected},
		{"/%4g", rejected},
		{"/%g4", rejected},
		{"/% 41", rejected},
		{"/%+41", rejected},
		{"/%/41", rejected},
		{"/%u0070osts", rejected}, // a web server decoded these too, after it had checked for dots and slashes
		{"/%U0070osts", rejected},
		{"/%x70osts", rejected},
	}},
	{"double escapes", [][2]string{
		{"/100%25", "/100%"},
		{"/100%25/x", "/100%/x"},
		{"/100%25zz", "/100%zz"},
		{"/%25%25", "/%%"},
		{"/%254", "/%4"},
		{"/%25/61", "/%/61"},
		{"/%25u00", "/%u00"},
		{"/%2570osts", rejected},
		{"/x/%252e%252e/posts", rejected}, // a server decoded once to check and again to serve
		{"/x%252fposts", rejected},
		{"/x%255cposts", rejected},
		{"/%25%37%30osts", rejected}, // the digits of the second escape are escaped as well
		{"/%257%30osts", rejected},
		{"/%252570osts", rejected},
		{"/%2500", rejected},
		{"/%25u0070osts", rejected},
		{"/%25U002f", rejected},
		{"/%2%35", rejected},
	}},
	{"parameters", [][2]string{
		{"/posts;v=1", "/posts"},
		{"/posts;", "/posts"},
		{"/posts;;", "/posts"},
		{"/posts;a=1;b=2/7;c", "/posts/7"},
		{"/posts;jsessionid=0F", "/posts"}, // a filter matched the text, and the container routed without the parameter
		{"/;x/posts", "/posts"},            // an access filter saw an empty segment where the router saw none
		{"/posts/;", "/posts"},
		{"/;", "/"},
		{"/posts;a=../7", "/posts/7"},
		{"/posts;a/../x", "/x"},
		{"/posts;a=%20b", "/posts"},
		{"/posts,v=1", "/posts,v=1"},
		{"/...;x", rejected},
		{"/x/..;/posts", rejected}, // a proxy treated it as a name, and the container behind it went up
		{"/x/..;a=b/posts", rejected},
		{"/x/%2e%2e;/posts", rejected},
		{"/x/.;/posts", rejected},
		{"/..;", rejected},
		{"/posts%3bv=1", rejected}, // a filter decoded and then cut at the semicolon, and the router did neither
		{"/posts%3Bv=1", rejected},
		{"/posts;a=%2f", rejected},
		{"/posts;a=\\", rejected},
		{"/posts;a=%zz", rejected},
		{"/posts;a=%00", rejected},
		{"/posts;a=%c3", rejected},
		{"/posts;a=%2561", rejected},
	}},
	{"unicode", [][2]string{
		{"/caf%C3%A9", "/café"},
		{"/caf%c3%a9", "/café"},
		{"/café", "/café"},
		{"/cafe%CC%81", "/café"}, // the accent as a separate character
		{"/cafe\u0301", "/café"},
		{"/caf\xc3%A9", "/café"},
		{"/%E2%84%AA", "/K"},               // the Kelvin sign is the letter, in form C
		{"/%e1%84%80%e1%85%a1", "/\uac00"}, // Korean by letter
		{"/q\u0323\u0307", "/q\u0323\u0307"},
		{"/q\u0307\u0323", "/q\u0323\u0307"}, // the accents in another order
		{"/日本語", "/日本語"},
		{"/%F0%9F%98%80", "/😀"},
		{"/❤\ufe0f", "/❤\ufe0f"},
		{"/\ufb01le", "/\ufb01le"},  // a ligature is not a separator: it stays, as it is another name
		{"/\u00bd", "/\u00bd"},      // folds to a fraction slash, which is not the slash
		{"/%EF%BF%BD", "/\ufffd"},   // the replacement character, properly sent
		{"/x\uff0fposts", rejected}, // fullwidth: a code page conversion made it a slash after the check
		{"/x%EF%BC%8Fposts", rejected},
		{"/x\uff3cposts", rejected},
		{"/x/\uff0e\uff0e/posts", rejected},
		{"/x/.\uff0e/posts", rejected},
		{"/x/\u2024\u2024/posts", rejected}, // one dot leader
		{"/x/\u2025/posts", rejected},       // two dot leader
		{"/posts\u2026", rejected},
		{"/\u2488", rejected}, // a digit with a full stop
		{"/\u2100", rejected}, // a slash between letters
		{"/posts\uff052f", rejected},
		{"/%25\uff16\uff11", rejected}, // an escape once its digits are folded
		{"/posts\uff1bv=1", rejected},
		{"/posts\u037ev=1", rejected}, // the Greek question mark is the semicolon even in form C
		{"/posts?x", rejected},
		{"/posts\uff1fx", rejected},
		{"/posts\uff03x", rejected},
		{"/posts\u200b", rejected}, // zero width
		{"/po%E2%80%8Bsts", rejected},
		{"/po\u200dsts", rejected},
		{"/po\u00adsts", rejected},
		{"/posts\ufeff", rejected},
		{"/\u202estsop", rejected}, // written from right to left
		{"/\u2066posts\u2069", rejected},
		{"/po\u034fsts", rejected},
		{"/posts\u3164", rejected},
		{"/posts\U000e0041", rejected},
		{"/posts\u2028", rejected},
		{"/e" + strings.Repeat("\u0301", 31), rejected},
		{"/%ff", rejected},
		{"/\xff", rejected},
		{"/%c3", rejected},
		{"/%a9", rejected},
		{"/caf%C3/%A9", rejected},
		{"/x%c0%afposts", rejected}, // a slash in two bytes: a web server decoded invalid UTF-8, and ran any program
		{"/x%e0%80%afposts", rejected},
		{"/x%f0%80%80%afposts", rejected},
		{"/x/%c0%ae%c0%ae/posts", rejected},
		{"/%c0%80", rejected},
		{"/%ed%a0%80", rejected}, // a surrogate
		{"/%ed%a0%bd%ed%b8%80", rejected},
		{"/%f4%90%80%80", rejected}, // beyond the last character
		{"/%fe%ff", rejected},
	}},
	{"control characters", [][2]string{
		{"/posts%00", rejected}, // a filter compared the whole text, and the file system stopped at the NUL
		{"/posts%00.png", rejected},
		{"/posts\x00", rejected},
		{"/posts%0a", rejected}, // a filter's regular expression stopped at the end of the line
		{"/posts%0d%0aX-User:%20root", rejected},
		{"/posts\n", rejected},
		{"/posts\r", rejected},
		{"/posts%09", rejected},
		{"/po\tsts", rejected}, // some parsers drop tabs and line ends
		{"/posts%1f", rejected},
		{"/posts%7f", rejected},
		{"/posts%7F", rejected},
		{"/posts\x7f", rejected},
		{"/posts%c2%80", rejected},
		{"/posts\u0085", rejected},
		{"/posts%c2%9f", rejected},
	}},
	{"no leading slash", [][2]string{
		{"", rejected},
		{"*", rejected},
		{"posts", rejected},
		{"./posts", rejected},
		{"../posts", rejected},
		{"%2fposts", rejected},
		{"\\posts", rejected},
		{" /posts", rejected},
		{";/posts", rejected},
		{"?x", rejected},
		{"http://example.com/posts", rejected},
		{"example.com:443", rejected},
		{"\uff0fposts", rejected},
	}},
	{"not the path alone", [][2]string{
		{"/posts?page=2", rejected},
		{"/posts?", rejected},
		{"/posts#top", rejected}, // a proxy routed by the whole text, and the application without the fragment
		{"/posts#/../x", rejected},
	}},
	{"trailing slash", [][2]string{
		{"/posts/", "/posts"},
		{"/posts//", "/posts"},
		{"/posts/./", "/posts"},
		{"/posts/x/../", "/posts"},
		{"/posts/;/", "/posts"},
		{"/x/../", "/"},
		{"/./", "/"},
	}},
	{"case", [][2]string{
		{"/Posts", "/Posts"},
		{"/POSTS/7", "/POSTS/7"},
		{"/%50osts", "/Posts"},
		{"/CAF%C3%89", "/CAFÉ"},
	}},
	{"size", [][2]string{
		{"/" + strings.Repeat("a", match.MaxPathBytes-1), "/" + strings.Repeat("a", match.MaxPathBytes-1)},
		{"/" + strings.Repeat("a", match.MaxPathBytes), rejected},
		{strings.Repeat("/", match.MaxPathBytes), "/"},
		{strings.Repeat("/", match.MaxPathBytes+1), rejected},
		{"/x" + strings.Repeat("%", match.MaxPathBytes), rejected},
		{"/" + strings.Repeat("é", 1365), "/" + strings.Repeat("é", 1365)},
		{"/" + strings.Repeat("é", 1366), rejected}, // six bytes each when forwarded
		{"/" + strings.Repeat(" ", 2731), rejected},
		{strings.Repeat("/a", 256), strings.Repeat("/a", 256)},
		{strings.Repeat("/a", 257), rejected},
		{strings.Repeat("//a", 256) + "//", strings.Repeat("/a", 256)},
		{strings.Repeat("/a", 256) + "/..", rejected},
		{strings.Repeat("/a/..", 128), "/"},
		{strings.Repeat("/.", 257), rejected},
	}},
}

func TestCanonicalPath(t *testing.T) {
	for _, group := range pathGroups {
		t.Run(group.threat, func(t *testing.T) {
			for _, s := range group.spellings {
				got, err := match.CanonicalPath(s[0])
				switch {
				case s[1] == rejected && !errors.Is(err, match.ErrAmbiguousPath):
					t.Errorf("%.80q gives %.80q and %v, want ErrAmbiguousPath", s[0], got, err)
				case s[1] == rejected && got != "":
					t.Errorf("%.80q is rejected and gives %.80q", s[0], got)
				case s[1] != rejected && (got != s[1] || err != nil):
					t.Errorf("%.80q gives %.80q and %v, want %.80q", s[0], got, err, s[1])
				case err == nil:
					checkCanonical(t, got)
				}
			}
		})
	}
}

// TestPathCharacters tests every Unicode character: one that folds into a character with a meaning in paths is rejected
// next to letters, alone and after a percent sign, and the form of any other is final.
func TestPathCharacters(t *testing.T) {
	folds := 0
	for r := rune(0x80); r <= unicode.MaxRune; r++ {
		folded := norm.NFKC.String(string(r))
		if folded == string(r) {
			continue
		}
		folds++
		for _, sent := range []string{"/a" + string(r) + "b", "/" + string(r), "/%25" + string(r) + "1"} {
			got, err := match.CanonicalPath(sent)
			if err == nil && strings.ContainsAny(folded, `/\.%;?#`) {
				t.Errorf("%q (%U) gives %q, and folds to %q", sent, r, got, folded)
			}
			if err == nil {
				checkCanonical(t, got)
			}
		}
	}
	if folds < 4000 {
		t.Errorf("only %d characters fold, so nearly nothing was tested", folds)
	}
}

// TestPathErrors checks that the message gives the reason and does not repeat the path, which anyone may have sent.
func TestPathErrors(t *testing.T) {
	for sent, want := range map[string]string{
		"posts":                         "no leading slash",
		"/%zz":                          "write %25",
		"/a%2fb":                        "escaped slash",
		"/a\\b":                         "backslash",
		"/a?b":                          "query",
		"/a%0a":                         "control character",
		"/a%2561":                       "an escape after decoding",
		"/%ff":                          "not UTF-8",
		"/a\u200bb":                     "invisible character",
		"/a\uff0fb":                     "fold into a separator",
		"/..":                           "above the root",
		"/a/..;":                        "dots with parameters",
		strings.Repeat("/a", 300):       "256 segments",
		strings.Repeat("/a", 5000):      "8 KiB",
		"/" + strings.Repeat("é", 2000): "8 KiB when escaped",
	} {
		_, err := match.CanonicalPath(sent)
		if err == nil || !strings.HasPrefix(err.Error(), match.ErrAmbiguousPath.Error()+": ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80q: error %v, want one that says %q", sent, err, want)
		}
	}
}

func TestEscapePath(t *testing.T) {
	for canonical, want := range map[string]string{
		"/":                    "/",
		"/posts/7":             "/posts/7",
		"/!$&'()*+,=:@-._~":    "/!$&'()*+,=:@-._~",
		"/a b":                 "/a%20b",
		"/100%":                "/100%25",
		"/a?b#c":               "/a%3Fb%23c",
		"/café":                "/caf%C3%A9",
		"/\"<>[]^`{|}":         "/%22%3C%3E%5B%5D%5E%60%7B%7C%7D",
		"/;\\ are never there": "/%3B%5C%20are%20never%20there",
	} {
		if got := match.EscapePath(canonical); got != want {
			t.Errorf("EscapePath(%q) is %q, want %q", canonical, got, want)
		}
	}
}

// TestEscapePathForwarded checks that a URL made of both forms, as a proxy makes it, sends the result of EscapePath.
func TestEscapePathForwarded(t *testing.T) {
	for _, group := range pathGroups {
		for _, s := range group.spellings {
			if p := s[1]; p != rejected {
				u := url.URL{Scheme: "http", Host: "app", Path: p, RawPath: match.EscapePath(p)}
				if got := u.RequestURI(); got != match.EscapePath(p) {
					t.Errorf("%.80q is sent as %.80q, want %.80q", p, got, match.EscapePath(p))
				}
			}
		}
	}
}

// TestPathSpellings spells a path in several ways at once that all servers agree on: the form is always the same.
func TestPathSpellings(t *testing.T) {
	between := []string{"/", "/", "//", "/./", "/x/../", "/%2e/", "/;p/", "/x;p/%2E./"}
	name := rapid.StringMatching(`[A-Za-z0-9_~!$&'()*+,=:@"é日-]([A-Za-z0-9._~ é日-]{0,5}[A-Za-z0-9_~é日-])?`)
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfN(name, 1, 5).Draw(t, "names")
		want := "/" + strings.Join(names, "/")
		var sent strings.Builder
		for _, n := range names {
			sent.WriteString(rapid.SampledFrom(between).Draw(t, "before"))
			for _, c := range []byte(n) {
				if c >= 0x80 || rapid.Bool().Draw(t, "escaped") {
					digits := rapid.SampledFrom([]string{"0123456789abcdef", "0123456789ABCDEF"}).Draw(t, "digits")
					sent.Write([]byte{'%', digits[c>>4], digits[c&15]})
				} else {
					sent.WriteByte(c)
				}
			}
			sent.WriteString(rapid.SampledFrom([]string{"", "", ";", ";v=1;w"}).Draw(t, "parameters"))
		}
		sent.WriteString(rapid.SampledFrom([]string{"", "/", "//", "/.", "/x/..", "/;"}).Draw(t, "end"))
		if got, err := match.CanonicalPath(sent.String()); got != want || err != nil {
			t.Fatalf("%q gives %q and %v, want %q", sent.String(), got, err, want)
		}
	})
}

func TestPathAllocations(t *testing.T) {
	for _, tt := range []struct {
		sent string
		most float64
	}{
		{"/", 0},
		{"/v1/users/0123456789/posts", 0},
		{"/" + strings.Repeat("a", match.MaxPathBytes-1), 0},
		{strings.Repeat("/a", 256), 0},
		{"/posts/", 1}, // the result
		{"/a%20b", 1},
		{"/%70osts;v=1//./7/", 1},
	} {
		if n := testing.AllocsPerRun(100, func() { _, _ = match.CanonicalPath(tt.sent) }); n > tt.most {
			t.Errorf("%v allocations for %.80q, want at most %v", n, tt.sent, tt.most)
		}
	}
	if n := testing.AllocsPerRun(100, func() { match.EscapePath("/v1/users/0123456789/posts") }); n != 0 {
		t.Errorf("%v allocations to escape nothing, want none", n)
	}
}

func BenchmarkCanonicalPath(b *testing.B) {
	for name, sent := range map[string]string{
		"canonical": "/v1/users/0123456789/posts",
		"escaped":   "/v1/users/0123456789/p%6Fsts/",
		"unicode":   "/v1/users/0123456789/caf%C3%A9",
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if p, err := match.CanonicalPath(sent); p == "" || err != nil {
					b.Fatal(p, err)
				}
			}
		})
	}
}
