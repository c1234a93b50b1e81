package rules_test

import (
	"bufio"
	"encoding/base64"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/httplimit"
	. "github.com/sluiceproject/sluice/rules"
)

// For any value of a request, an override for that value is found by the request and is not reported as impossible.
func TestEveryValueOfARequestIsPossible(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	text := func(alphabet string) string {
		var b strings.Builder
		for letters := []rune(alphabet); b.Len() == 0 || r.IntN(6) > 0; {
			b.WriteRune(letters[r.IntN(len(letters))])
		}
		return b.String()
	}
	const signs = "!#$%&'*+-.^_`|~"
	tried := make(map[string]int)
	for range 2000 {
		method, host := text("AbZ09"+signs), text("aB09.-_[]:!$&'()*+,=~%")
		path := "/" + text("aB09/.~-_!$&'()*+,:@=") + text("%é 2") // some of which is rejected
		header := "x" + text("aB09\t \"(),/:;<=>?@[]{}é"+signs) + "x"
		query, cookie := text("aB09%+=&éx"), text("aB09%+=/.-_~\"")
		user := text("aB09 é\x01\t;")
		raw := method + " " + strings.ReplaceAll(path, " ", "%20") + "?q=" + query + " HTTP/1.1\r\nHost: " + host +
			"\r\nX-User: \t" + header + " \r\nCookie: sess=" + cookie +
			"\r\nAuthorization: Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+text("a:"))) + "\r\n\r\n"
		q, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
		if err != nil {
			continue
		}
		for ref, written := range map[string]string{
			"method": q.Method, "host": q.Host, "path": q.URL.EscapedPath(), "header:X-User": q.Header.Get("X-User"), "header:Host": q.Host,
			"query:q": q.URL.Query().Get("q"), "cookie:sess": cookie, "basic_user": user,
		} {
			rule := Rule{Name: "r", Per: []Ref{{Name: ref}}, OnMissing: MissingSkip, Limits: []Limit{{Limit: perHour(1)}}}
			plain, err := New(Config{Rules: []Rule{rule}})
			if err != nil {
				t.Fatal(err)
			}
			var m MatchResult
			if plain.Match(httplimit.NewRulesRequest(q, plain), &m) != nil || len(m.Takes) == 0 {
				continue // rejected, or it does not have the attribute
			}
			tried[ref]++
			rule.Overrides = []Override{{Key: []string{written}, Limits: []Limit{{DenyAll: true}}}}
			s, err := New(Config{Rules: []Rule{rule}})
			if err != nil {
				t.Errorf("%s %q: %v", ref, written, err)
				continue
			}
			if err := s.Match(httplimit.NewRulesRequest(q, s), &m); err != nil || m.Outcome != MatchRejected {
				t.Errorf("%s %q: the override is not found: %v, %v", ref, written, m.Outcome, err)
			}
			for _, w := range s.Warnings() {
				if strings.Contains(w.Msg, "is never matched") {
					t.Errorf("%s %q: %v", ref, written, w)
				}
			}
		}
	}
	for _, ref := range []string{"method", "host", "path", "header:X-User", "header:Host", "query:q", "cookie:sess", "basic_user"} {
		if tried[ref] < 100 {
			t.Errorf("%s was tried %d times", ref, tried[ref])
		}
	}
	t.Log(tried)
}
