package sample_test

import (
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/rulework/sample"
)

func TestSends(t *testing.T) {
	for text, want := range map[string]string{
		"/":                             "GET /",
		"POST /posts?a=b":               "POST /posts?a=b",
		" GET   /x ":                    "GET /x",
		"GET https://api.example.com":   "GET http://api.example.com/",
		"GET http://h:8080?a=b":         "GET http://h:8080/?a=b",
		"https://api.example.com/a%2Fb": "GET http://api.example.com/a%2Fb",
	} {
		h, err := sample.ParseSend(text)
		if err != nil || h.String() != want {
			t.Errorf("%q: %v %v, want %s", text, h, err, want)
			continue
		}
		if r, err := h.Request(); err != nil || r.Method != h.Method || r.URL.EscapedPath() == "" {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{
		"", "posts", "GET posts", "G(T /", "GET http:///x", "GET /a#b", "GET /%zz", "GET /a\x00b", "GET http://a b/",
	} {
		if h, err := sample.ParseSend(text); err == nil {
			t.Errorf("%q is taken for %v", text, h)
		}
	}
}
