package checkapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sluiceproject/sluice/cmd/internal/testenv/rlstest"
)

// strangeStrings are JSON strings with different values, as callers write them that copy headers of clients: raw bytes,
// escaped unpaired surrogates, as JavaScript and Python write them, NUL and other control characters.
func strangeStrings() []string {
	all := []string{
		`"\ud800"`, `"\ud801"`, `"\udc00"`, `"\ud800\ud800"`, `"\ud800\udc00"`, `"\udc00\ud800"`, `"\ud800a"`, `"\ud800\u0061\u0061"`,
		`"\udcff"`, `"\ufffe"`,
	}
	for _, value := range rlstest.StrangeValues {
		switch {
		case value == "\xed\xa0\x80": // the bytes of \ud800
		case strings.TrimSpace(value) != value || value == "": // headers are trimmed, and empty ones are absent
		case utf8.ValidString(value):
			b, err := json.Marshal(value)
			if err != nil {
				panic(err)
			}
			all = append(all, string(b))
		default:
			all = append(all, `"`+value+`"`)
		}
	}
	return all
}

// Any header value of a client can be checked: no value fails the check, and no two values share a bucket. Attributes that no
// rule reads have no effect.
func TestStrangeValues(t *testing.T) {
	s := withRules(t, someRules...)
	bodies := map[string]func(string) string{
		"header": func(v string) string {
			return `{"attributes":{"method":"POST","path":"/posts","headers":{"X-User":` + v + `,"X-Unread":` + v + `},"claims":{"unread":` + v + `}},"cost":2}`
		},
		"descriptor": func(v string) string {
			return `{"domain":"messaging","descriptors":[[{"key":"message_type","value":` + v + `}],[{"key":` + v + `,"value":` + v + `}]],"cost":5}`
		},
	}
	for name, body := range bodies {
		for _, v := range strangeStrings() {
			if a := s.ask(t, "/v1/check", body(v)); a.status != http.StatusOK || !a.Allowed || a.left(t) != 0 {
				t.Errorf("%s %.20q: %d %s", name, v, a.status, a.body)
			}
			if a := s.ask(t, "/v1/check", body(v)); a.status != http.StatusTooManyRequests || a.Allowed {
				t.Errorf("%s %.20q again: %d %s", name, v, a.status, a.body)
			}
		}
	}
}
