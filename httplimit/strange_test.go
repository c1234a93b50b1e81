package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/httplimit"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/rules"
)

// Every byte sequence that HTTP allows in a header is its own key, for key functions and for rules: no value is an error,
// and no two values share a bucket.
func TestStrangeHeaders(t *testing.T) {
	limiter, err := sluice.New(memstore.New(), "users", sluice.PerDay(1).WithBurst(1))
	if err != nil {
		t.Fatal(err)
	}
	served := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for name, h := range map[string]http.Handler{
		"key":   httplimit.Middleware(limiter, httplimit.ByHeader("X-User"))(served),
		"rules": byRules(memstore.New(), rules.Config{Rules: []rules.Rule{perUser("users", sluice.PerDay(1).WithBurst(1))}}),
	} {
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		for _, value := range []string{
			"\xff", "\xfe", "\uFFFD", "\xff\xff", "\xc3", "\xc3\x28", "\xed\xa0\x80", `\xff`, `"\xff"`, "%FF", "?", "", "a", "a b", "a\tb",
			"e\u0301", "\u00e9", strings.Repeat("\xff", 2000), strings.Repeat("\xff", 1999) + "\xfe",
		} {
			head := "POST /posts HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nX-Unread: " + value + "\r\nX-User: " + value + "\r\n"
			if first, again := raw(t, s, head).StatusCode, raw(t, s, head).StatusCode; first != http.StatusOK || again != http.StatusTooManyRequests {
				t.Errorf("%s: %.20q: %d, then %d", name, value, first, again)
			}
		}
	}
}
