package match_test

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/internal/match"
)

// A rejected path stays rejected with any further byte, and an accepted one has the same meaning with that byte plain
// and escaped: whatever net/http accepts, the path is read as it was sent.
func TestSentPath(t *testing.T) {
	canonical := func(target string) (string, bool) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader("GET " + target + " HTTP/1.1\r\nHost: a\r\n\r\n")))
		if err != nil {
			return "", false
		}
		path, err := match.CanonicalPath(match.SentPath(r.URL))
		return path, err == nil
	}
	plain := 0
	for c := range 256 {
		b := string([]byte{byte(c)})
		if c >= 0x80 {
			b = string(rune(c)) // text is UTF-8
		}
		for _, path := range []string{"/a%2fb", "/a%5cb", "/a/%2e%2e%2fb", "/%252e"} {
			for _, target := range []string{path + b, "/" + b + path, path + "/" + b} {
				if strings.ContainsAny(b, "?#") {
					continue // the path ends there
				}
				if got, ok := canonical(target); ok {
					t.Errorf("%q is taken for %q", target, got)
				}
			}
		}
		var escaped strings.Builder
		for i := range len(b) {
			fmt.Fprintf(&escaped, "%%%02X", b[i])
		}
		if strings.ContainsAny(b, "%/?#;+.") {
			continue // these have another meaning when not escaped
		}
		one, ok := canonical("/a%20b" + b)
		other, same := canonical("/a%20b" + escaped.String())
		if ok && (!same || one != other) {
			t.Errorf("%q and %q are %q and %q", b, escaped.String(), one, other)
		}
		if ok {
			plain++
		}
	}
	if plain < 150 {
		t.Errorf("only %d bytes may be plain", plain)
	}
}
