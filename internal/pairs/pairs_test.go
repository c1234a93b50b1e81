package pairs

import (
	"bufio"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
)

// lines reads a file of testdata: what is sent, a tab, and what is found.
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

// Without doubt the value is what net/url reads, and it is there once.
func FuzzQuery(f *testing.F) {
	sent, _ := lines(f, "testdata/queries.txt")
	for _, raw := range sent {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		all, _ := url.ParseQuery(raw)
		switch value, n := Query(raw, "role"); {
		case n == None && len(all["role"]) > 0, n == One && (len(all["role"]) != 1 || all["role"][0] != value):
			t.Errorf("%q: got %q, %d, net/url reads %q", raw, value, n, all["role"])
		}
	})
}

// Without doubt the value is what net/http reads, and it is there once.
func FuzzCookie(f *testing.F) {
	sent, _ := lines(f, "testdata/cookies.txt")
	for _, line := range sent {
		f.Add(line, "role=x")
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		r := http.Request{Header: http.Header{"Cookie": {first, second}}}
		all := r.CookiesNamed("role")
		switch value, n := Cookie(r.Header["Cookie"], "role"); {
		case n == None && len(all) > 0, n == One && (len(all) != 1 || all[0].Value != value):
			t.Errorf("%q, %q: got %q, %d, net/http reads %v", first, second, value, n, all)
		}
	})
}
