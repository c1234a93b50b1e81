package gateway_test

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/gateway"
	"github.com/sluiceproject/sluice/internal/match"
	"github.com/sluiceproject/sluice/rules"
)

type tester interface {
	Errorf(string, ...any)
	Fatal(...any)
}

// checkTarget sends a target through a gateway that has a route for all, and looks at what its upstream gets.
func checkTarget(t tester, set func() *rules.Set, target string) {
	req, err := http.ReadRequest(bufio.NewReader(strings.NewReader("GET " + target + " HTTP/1.1\r\nHost: example.com\r\n\r\n")))
	if err != nil {
		return // net/http's server answers 400
	}
	all, err := match.ParsePattern("/**", false)
	if err != nil {
		t.Fatal(err)
	}
	var arrived, matched string
	g, err := gateway.New(gateway.Config{
		Rules: set,
		Routes: []gateway.Route{{Path: all, Upstream: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			out := *r.URL // as a client writes it into the first line
			out.Scheme, out.Host = "http", "app"
			arrived = out.RequestURI()
		})}},
		Shed: func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if matched, err = match.CanonicalPath(r.URL.EscapedPath()); err != nil {
					t.Errorf("%q: rules would refuse what the gateway takes: %v", target, err)
				}
				next.ServeHTTP(w, r)
			})
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	g.ServeHTTP(w, req)
	if arrived == "" {
		if w.Code != http.StatusBadRequest {
			t.Errorf("%q: %d", target, w.Code)
		}
		return
	}
	checkArrived(t, target, arrived)
	path, _, _ := strings.Cut(arrived, "?")
	if got, err := match.CanonicalPath(path); err != nil || got != matched {
		t.Errorf("%q was matched as %q and arrived as %q", target, matched, arrived)
	}
	if anybodyReads(arrived, "/posts") != (withoutLooseEnds(matched) == "/posts") {
		t.Errorf("%q was matched as %q and arrived as %q", target, matched, arrived)
	}
}
