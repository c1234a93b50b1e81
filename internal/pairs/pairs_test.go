package pairs

import (
	"bufio"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"unicode"
)

// lines reads a file of testdata: the sent text, a tab, and the expected result.
func lines(t testing.TB, file string) (sent, want []string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
		if before, after, ok := strings.Cut(in.Text(), "\t"); ok && in.Text()[0] != '#' {
			sent, want = append(sent, before), append(want, after)
		}
	}
	return sent, want
}

func text(value string, n Count) string {
	return [...]string{"none", "=" + value, "doubt"}[n]
}

func TestQuery(t *testing.T) {
	sent, want := lines(t, "testdata/queries.txt")
	if len(sent) < 40 {
		t.Fatalf("there are %d", len(sent))
	}
	for i, raw := range sent {
		if got := text(Query(raw, "role")); got != want[i] {
			t.Errorf("%s: got %s, want %s", raw, got, want[i])
		}
	}
}

func TestCookie(t *testing.T) {
	sent, want := lines(t, "testdata/cookies.txt")
	if len(sent) < 15 {
		t.Fatalf("there are %d", len(sent))
	}
	for i, line := range sent {
		if got := text(Cookie(strings.Split(line, " || "), "role")); got != want[i] {
			t.Errorf("%s: got %s, want %s", line, got, want[i])
		}
	}
}

// Names that PHP folds into one are in doubt if another of them is read; other names are not.
func TestNamesThatPHPFolds(t *testing.T) {
	alike := []string{"user_id", "user.id", "user id", "user[id", "User.ID", " user_id", "user.id[]", "user_id[x]"}
	for _, name := range alike[:4] {
		for _, sent := range alike {
			want := "doubt"
			if strings.EqualFold(sent, name) {
				want = "=1"
			}
			if got := text(Query(url.QueryEscape(sent)+"=1", name)); got != want {
				t.Errorf("query: %q where %q is read: got %s, want %s", sent, name, got, want)
			}
			if want == "doubt" {
				if got := text(Query(url.QueryEscape(sent)+"=1&"+url.QueryEscape(name)+"=2", name)); got != want {
					t.Errorf("query: %q beside %q: got %s, want %s", sent, name, got, want)
				}
			}
			if trimmed := strings.TrimSpace(sent); strings.EqualFold(trimmed, name) {
				want = "=1"
			}
			if got := text(Cookie([]string{sent + "=1"}, name)); got != want {
				t.Errorf("cookie: %q where %q is read: got %s, want %s", sent, name, got, want)
			}
		}
	}
	for _, sent := range []string{"user", "userid", "user-id", "user_id_", "user[id]", "user.ids", "x.user_id", "id"} {
		if got := text(Query(sent+"=1", "user_id")); got != "none" {
			t.Errorf("query: %q where user_id is read: got %s", sent, got)
		}
		if got := text(Cookie([]string{sent + "=1"}, "user_id")); got != "none" {
			t.Errorf("cookie: %q where user_id is read: got %s", sent, got)
		}
	}
	if got := text(Query("filter[name]=ada&filter[age]=3", "filter[name]")); got != "=ada" {
		t.Errorf("a parameter with brackets: got %s", got)
	}
}

// readers read a cookie's value like different servers. Values that one of them reads as equal must count as equal.
var readers = map[string]func(string) string{
	"as sent":       func(s string) string { return s },
	"without blank": func(s string) string { return strings.Trim(s, " \t") },
	"net/http":      func(s string) string { return unquote(strings.Trim(s, " \t")) },
	"encodeURI":     func(s string) string { return decode(s, url.PathUnescape) },
	"PHP":           func(s string) string { return decode(strings.Trim(s, " \t"), url.QueryUnescape) },
	"cookie of npm": func(s string) string { return decode(unquote(strings.Trim(s, " \t")), url.PathUnescape) },
}

func unquote(s string) string {
	if len(s) > 1 && s[0] == '"' && s[len(s)-1] == '"' {
		return s[1 : len(s)-1]
	}
	return s
}

func decode(s string, f func(string) (string, error)) string {
	if plain, err := f(s); err == nil {
		return plain
	}
	return s
}

// Two spellings that any server reads as one value count as one, or are in doubt.
func TestCookieSpellings(t *testing.T) {
	pieces := []string{"a", "%61", "%41", "A", "+", "%2B", "%2b", " ", "%20", "\"", "%22", "=", "/", "%", "\t", ","}
	var all []string
	for _, a := range pieces {
		for _, b := range pieces {
			for _, c := range pieces {
				all = append(all, a+b+c)
			}
		}
	}
	found := make([]string, len(all))
	for i, sent := range all {
		found[i] = text(Cookie([]string{"role=" + sent}, "role"))
	}
	compared := 0
	for name, read := range readers {
		first := make(map[string]int)
		for i, sent := range all {
			if found[i] == "doubt" {
				continue
			}
			value := read(sent)
			j, known := first[value]
			if !known {
				first[value] = i
				continue
			}
			compared++
			if found[i] != found[j] {
				t.Errorf("%s reads %q and %q as %q: they count as %s and %s", name, sent, all[j], value, found[i], found[j])
			}
		}
	}
	if compared < 1000 {
		t.Errorf("%d spellings were compared", compared)
	}
}

// nameReaders read a name like different servers.
var nameReaders = map[string]func(string) string{
	"bytes": strings.TrimSpace,
	"Latin-1": func(s string) string {
		var b strings.Builder
		for i := range len(s) {
			b.WriteRune(rune(s[i]))
		}
		return strings.TrimFunc(b.String(), func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) })
	},
	"C string": func(s string) string { name, _, _ := strings.Cut(s, "\x00"); return name },
}

// A name with any character next to it is in doubt if some server reads it as the requested name.
func TestNamesWithSpaces(t *testing.T) {
	taken := 0
	for r := rune(0); r < 0x3100; r++ {
		around := []string{string(r)}
		if r < 256 {
			around = append(around, string([]byte{byte(r)}))
		}
		for _, s := range around {
			for _, name := range []string{s + "role", "role" + s, s + "role" + s} {
				for as, read := range nameReaders {
					if !strings.EqualFold(read(name), "role") {
						continue
					}
					taken++
					if _, n := Query(url.QueryEscape(name)+"=1", "role"); n == None {
						t.Errorf("query: %s takes %q for role, and it passes", as, name)
					}
					if strings.ContainsAny(name, ";=\r\n\x00") {
						continue // not the name of a cookie, or not a header
					}
					if _, n := Cookie([]string{"x=1; " + name + "=1"}, "role"); n == None {
						t.Errorf("cookie: %s takes %q for role, and it passes", as, name)
					}
				}
			}
		}
	}
	if taken < 200 {
		t.Errorf("only %d were compared", taken)
	}
	for _, escaped := range []string{"role%00", "%A0role", "role%85", "role%00x"} {
		if _, n := Cookie([]string{escaped + "=1"}, "role"); n != Doubt {
			t.Errorf("cookie: %s: %d", escaped, n)
		}
	}
}

// White space and control characters around a value do not change it, escaped or not; NUL is in doubt anywhere.
func TestValuesWithSpaces(t *testing.T) {
	for r := rune(1); r < 0x3100; r++ {
		if !unicode.IsSpace(r) && !unicode.IsControl(r) {
			continue
		}
		e := url.PathEscape(string(r))
		for _, sent := range []string{"admin" + e, e + "admin", e + "admin" + e} {
			if got := text(Cookie([]string{"role=" + sent}, "role")); got != "=admin" && unicode.IsSpace(r) || got == "none" {
				t.Errorf("%s: %s", sent, got)
			}
		}
	}
	for _, sent := range []string{"%00", "admin%00", "%00admin", "ad%00min"} {
		if got := text(Cookie([]string{"role=" + sent}, "role")); got != "doubt" {
			t.Errorf("cookie %s: %s", sent, got)
		}
		if got := text(Query("role="+sent, "role")); got != "doubt" {
			t.Errorf("query %s: %s", sent, got)
		}
	}
}

// If there is no doubt, the value is the one that net/url reads, and the name occurs once, in any case.
func FuzzQuery(f *testing.F) {
	sent, _ := lines(f, "testdata/queries.txt")
	for _, raw := range sent {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		parsed, _ := url.ParseQuery(raw)
		var all []string
		for name, values := range parsed {
			if strings.EqualFold(name, "role") {
				all = append(all, values...)
			}
		}
		switch value, n := Query(raw, "role"); {
		case n == None && len(all) > 0, n == One && (len(all) != 1 || all[0] != value):
			t.Errorf("%q: got %q, %d, net/url reads %q", raw, value, n, all)
		}
	})
}

// If there is no doubt, net/http finds the cookie at most once, in any case, and its value is the one that servers make
// of net/http's.
func FuzzCookie(f *testing.F) {
	sent, _ := lines(f, "testdata/cookies.txt")
	for _, line := range sent {
		f.Add(line, "role=x")
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		r := http.Request{Header: http.Header{"Cookie": {first, second}}}
		var all []*http.Cookie
		for _, c := range r.Cookies() {
			if strings.EqualFold(c.Name, "role") {
				all = append(all, c)
			}
		}
		value, n := Cookie(r.Header["Cookie"], "role")
		switch {
		case n == None && len(all) > 0, n == One && len(all) > 1:
			t.Errorf("%q, %q: got %q, %d, net/http reads %v", first, second, value, n, all)
		case n == One:
			if len(all) == 1 { // net/http drops a few that others read
				if want, ok := CookieValue(all[0].Value); !ok || value != want {
					t.Errorf("%q, %q: got %q, want %q, %v", first, second, value, want, ok)
				}
			}
			if again, n := Cookie([]string{"role=" + url.PathEscape(value)}, "role"); n != One || again != value {
				t.Errorf("%q counts as %q, and that as %q, %d", first, value, again, n)
			}
		}
	})
}
