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

// refused stands for a path that has no canonical form.
const refused = ""

// pathGroups are spellings of paths by what somebody hopes to gain from them: each is either taken for the path beside
// it or refused. Where a spelling got past a real product, the comment says what that product did.
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
		{"/...", refused},
		{"/.../posts", refused},
		{"/..posts", "/..posts"},
		{"/posts..", "/posts.."},
		{"/.posts", "/.posts"},
		{"/posts.", "/posts."},
		{"/..", refused},
		{"/../posts", refused},
		{"/x/../../posts", refused},
		{"/%2e%2e/posts", refused},
		{"/./../posts", refused},
		{"/posts/../../posts", refused},
		{"/x/..%2fposts", refused},
		{"/x/..\\posts", refused},
	}},
	{"slashes", [][2]string{
		{"//", "/"},
		{"///", "/"},
		{"//posts", "/posts"}, // a proxy compared prefixes with "//admin" and the application served "/admin"
		{"/posts//7", "/posts/7"},
		{"/posts///7//", "/posts/7"},
		{"/x//../posts", "/posts"}, // the empty segment is not what ".." leaves
		{"/.//posts", "/posts"},
		{"//example.com/posts", "/example.com/posts"}, // not a host, though a URL parser may think so
		{"/http://example.com/", "/http:/example.com"},
		{"/x%2fposts", refused},
		{"/x%2Fposts", refused},
		{"/%2fposts", refused},
		{"/posts%2f", refused},
		{"/x\\posts", refused}, // a proxy matched one segment, and the application, on Windows, served two
		{"/x%5cposts", refused},
		{"/x%5Cposts", refused},
		{"/\\posts", refused},
		{"/..%5c..%5cposts", refused},
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
		{"/%20", refused},
		{"/%20.", refused},
		{"/.%20.", refused},
		{"/posts%c2%a0", refused},
		{"/posts%c2%a0.", refused},
		{"/%e3%80%80posts", refused},
		{"/%20%c2%a0posts", refused},
		{"/posts%20;v=1", "/posts "},
		{"/posts::$DATA", refused},
		{"/posts::%24INDEX_ALLOCATION/7", refused},
		{"/posts:$I30:$INDEX_ALLOCATION", refused},
		{"/posts.html", "/posts.html"},
		{"/posts:$", refused},
		{"/posts:$.", refused},
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
		{"/%", refused},
		{"/%4", refused},
		{"/posts%", refused},
		{"/posts%7", refused},
		{"/%zz", refused},
		{"/%4g", refused},
		{"/%g4", refused},
		{"/% 41", refused},
		{"/%+41", refused},
		{"/%/41", refused},
		{"/%u0070osts", refused}, // a web server decoded these too, after it had checked for dots and slashes
		{"/%U0070osts", refused},
		{"/%x70osts", refused},
	}},
	{"double escapes", [][2]string{
		{"/100%25", "/100%"},
		{"/100%25/x", "/100%/x"},
		{"/100%25zz", "/100%zz"},
		{"/%25%25", "/%%"},
		{"/%254", "/%4"},
		{"/%25/61", "/%/61"},
		{"/%25u00", "/%u00"},
		{"/%2570osts", refused},
		{"/x/%252e%252e/posts", refused}, // a server decoded once to check and once more to serve
		{"/x%252fposts", refused},
		{"/x%255cposts", refused},
		{"/%25%37%30osts", refused}, // the digits of the second escape are escaped as well
		{"/%257%30osts", refused},
		{"/%252570osts", refused},
		{"/%2500", refused},
		{"/%25u0070osts", refused},
		{"/%25U002f", refused},
		{"/%2%35", refused},
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
		{"/...;x", refused},
		{"/x/..;/posts", refused}, // a proxy let it pass as a name, and the container behind it went up
		{"/x/..;a=b/posts", refused},
		{"/x/%2e%2e;/posts", refused},
		{"/x/.;/posts", refused},
		{"/..;", refused},
		{"/posts%3bv=1", refused}, // a filter decoded and then cut at the semicolon, and the router did neither
		{"/posts%3Bv=1", refused},
		{"/posts;a=%2f", refused},
		{"/posts;a=\\", refused},
		{"/posts;a=%zz", refused},
		{"/posts;a=%00", refused},
		{"/posts;a=%c3", refused},
		{"/posts;a=%2561", refused},
	}},
	{"unicode", [][2]string{
		{"/caf%C3%A9", "/café"},
		{"/caf%c3%a9", "/café"},
		{"/café", "/café"},
		{"/cafe%CC%81", "/café"}, // the accent as a character of its own
		{"/cafe\u0301", "/café"},
		{"/caf\xc3%A9", "/café"},
		{"/%E2%84%AA", "/K"},               // the Kelvin sign is the letter, in form C
		{"/%e1%84%80%e1%85%a1", "/\uac00"}, // Korean by letter
		{"/q\u0323\u0307", "/q\u0323\u0307"},
		{"/q\u0307\u0323", "/q\u0323\u0307"}, // the accents in another order
		{"/日本語", "/日本語"},
		{"/%F0%9F%98%80", "/😀"},
		{"/❤\ufe0f", "/❤\ufe0f"},
		{"/\ufb01le", "/\ufb01le"}, // a ligature is no separator: it stays, as it is another name
		{"/\u00bd", "/\u00bd"},     // folds to a fraction slash, which is not the slash
		{"/%EF%BF%BD", "/\ufffd"},  // the replacement character, properly sent
		{"/x\uff0fposts", refused}, // fullwidth: a code page conversion made it a slash after the check
		{"/x%EF%BC%8Fposts", refused},
		{"/x\uff3cposts", refused},
		{"/x/\uff0e\uff0e/posts", refused},
		{"/x/.\uff0e/posts", refused},
		{"/x/\u2024\u2024/posts", refused}, // one dot leader
		{"/x/\u2025/posts", refused},       // two dot leader
		{"/posts\u2026", refused},
		{"/\u2488", refused}, // a digit with a full stop
		{"/\u2100", refused}, // a slash between letters
		{"/posts\uff052f", refused},
		{"/%25\uff16\uff11", refused}, // an escape once its digits are folded
		{"/posts\uff1bv=1", refused},
		{"/posts\u037ev=1", refused}, // the Greek question mark is the semicolon even in form C
		{"/posts?x", refused},
		{"/posts\uff1fx", refused},
		{"/posts\uff03x", refused},
		{"/posts\u200b", refused}, // a width of zero
		{"/po%E2%80%8Bsts", refused},
		{"/po\u200dsts", refused},
		{"/po\u00adsts", refused},
		{"/posts\ufeff", refused},
		{"/\u202estsop", refused}, // written from right to left
		{"/\u2066posts\u2069", refused},
		{"/po\u034fsts", refused},
		{"/posts\u3164", refused},
		{"/posts\U000e0041", refused},
		{"/posts\u2028", refused},
		{"/e" + strings.Repeat("\u0301", 31), refused},
		{"/%ff", refused},
		{"/\xff", refused},
		{"/%c3", refused},
		{"/%a9", refused},
		{"/caf%C3/%A9", refused},
		{"/x%c0%afposts", refused}, // a slash in two bytes: a web server decoded what UTF-8 forbids, and ran any program
		{"/x%e0%80%afposts", refused},
		{"/x%f0%80%80%afposts", refused},
		{"/x/%c0%ae%c0%ae/posts", refused},
		{"/%c0%80", refused},
		{"/%ed%a0%80", refused}, // a surrogate
		{"/%ed%a0%bd%ed%b8%80", refused},
		{"/%f4%90%80%80", refused}, // beyond the last character
		{"/%fe%ff", refused},
	}},
	{"control characters", [][2]string{
		{"/posts%00", refused}, // a filter compared the whole, and the file system ended at the NUL
		{"/posts%00.png", refused},
		{"/posts\x00", refused},
		{"/posts%0a", refused}, // a filter's regular expression ended at the line
		{"/posts%0d%0aX-User:%20root", refused},
		{"/posts\n", refused},
		{"/posts\r", refused},
		{"/posts%09", refused},
		{"/po\tsts", refused}, // some parsers drop tabs and line ends
		{"/posts%1f", refused},
		{"/posts%7f", refused},
		{"/posts%7F", refused},
		{"/posts\x7f", refused},
		{"/posts%c2%80", refused},
		{"/posts\u0085", refused},
		{"/posts%c2%9f", refused},
	}},
	{"no leading slash", [][2]string{
		{"", refused},
		{"*", refused},
		{"posts", refused},
		{"./posts", refused},
		{"../posts", refused},
		{"%2fposts", refused},
		{"\\posts", refused},
		{" /posts", refused},
		{";/posts", refused},
		{"?x", refused},
		{"http://example.com/posts", refused},
		{"example.com:443", refused},
		{"\uff0fposts", refused},
	}},
	{"not the path alone", [][2]string{
		{"/posts?page=2", refused},
		{"/posts?", refused},
		{"/posts#top", refused}, // a proxy routed by the whole, and the application without the fragment
		{"/posts#/../x", refused},
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
		{"/" + strings.Repeat("a", match.MaxPathBytes), refused},
		{strings.Repeat("/", match.MaxPathBytes), "/"},
		{strings.Repeat("/", match.MaxPathBytes+1), refused},
		{"/x" + strings.Repeat("%", match.MaxPathBytes), refused},
		{"/" + strings.Repeat("é", 1365), "/" + strings.Repeat("é", 1365)},
		{"/" + strings.Repeat("é", 1366), refused}, // six bytes each when they are forwarded
		{"/" + strings.Repeat(" ", 2731), refused},
		{strings.Repeat("/a", 256), strings.Repeat("/a", 256)},
		{strings.Repeat("/a", 257), refused},
		{strings.Repeat("//a", 256) + "//", strings.Repeat("/a", 256)},
		{strings.Repeat("/a", 256) + "/..", refused},
		{strings.Repeat("/a/..", 128), "/"},
		{strings.Repeat("/.", 257), refused},
	}},
}

func TestCanonicalPath(t *testing.T) {
	for _, group := range pathGroups {
		t.Run(group.threat, func(t *testing.T) {
			for _, s := range group.spellings {
				got, err := match.CanonicalPath(s[0])
				switch {
				case s[1] == refused && !errors.Is(err, match.ErrAmbiguousPath):
					t.Errorf("%.80q gives %.80q and %v, want ErrAmbiguousPath", s[0], got, err)
				case s[1] == refused && got != "":
					t.Errorf("%.80q is refused and gives %.80q", s[0], got)
				case s[1] != refused && (got != s[1] || err != nil):
					t.Errorf("%.80q gives %.80q and %v, want %.80q", s[0], got, err, s[1])
				case err == nil:
					checkCanonical(t, got)
				}
			}
		})
	}
}

// TestPathCharacters goes through all of Unicode: a character that folds into something with a meaning in paths is
// refused, beside letters, alone and behind a percent sign, and the form of any other is final.
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

// TestPathErrors: the message says what is wrong, and does not repeat what a stranger sent.
func TestPathErrors(t *testing.T) {
	for sent, want := range map[string]string{
		"posts":                         "does not begin with a slash",
		"/%zz":                          "write %25",
		"/a%2fb":                        "escaped slash",
		"/a\\b":                         "backslash",
		"/a?b":                          "query",
		"/a%0a":                         "control character",
		"/a%2561":                       "still holds an escape",
		"/%ff":                          "not UTF-8",
		"/a\u200bb":                     "cannot be seen",
		"/a\uff0fb":                     "fold into a separator",
		"/..":                           "above the root",
		"/a/..;":                        "dots with parameters",
		strings.Repeat("/a", 300):       "256 segments",
		strings.Repeat("/a", 5000):      "8 KiB",
		"/" + strings.Repeat("é", 2000): "8 KiB when it is escaped",
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

// TestEscapePathForwarded: a URL made of both forms, as a proxy makes it, sends what EscapePath wrote.
func TestEscapePathForwarded(t *testing.T) {
	for _, group := range pathGroups {
		for _, s := range group.spellings {
			if p := s[1]; p != refused {
				u := url.URL{Scheme: "http", Host: "app", Path: p, RawPath: match.EscapePath(p)}
				if got := u.RequestURI(); got != match.EscapePath(p) {
					t.Errorf("%.80q is sent as %.80q, want %.80q", p, got, match.EscapePath(p))
				}
			}
		}
	}
}

// TestPathSpellings spells a path in ways that all servers agree on, several at once: the form is always the same.
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
