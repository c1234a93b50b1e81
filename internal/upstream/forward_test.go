package upstream_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/internal/upstream"
)

// gateway is a server that forwards to a group.
func gateway(t testing.TB, cfg upstream.Config) (*httptest.Server, *upstream.Group) {
	t.Helper()
	g, err := upstream.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(g)
	t.Cleanup(func() { s.Close(); g.Close() })
	return s, g
}

func origin(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func TestForward(t *testing.T) {
	at := origin(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Seen", r.Method+" "+r.URL.RequestURI()+" "+r.Host)
		w.Header().Set("Trailer", "X-After")
		w.WriteHeader(201)
		w.Write(body)
		w.Header().Set("X-After", "done")
	})
	gw, _ := gateway(t, upstream.Config{Servers: []string{at}})
	for _, body := range []string{"", "hello", strings.Repeat("x", 1<<20)} {
		r, _ := http.NewRequest("POST", gw.URL+"/a%2Fb/?q=1", strings.NewReader(body))
		r.Host = "api.example.com"
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != 201 || string(got) != body || res.Trailer.Get("X-After") != "done" ||
			res.Header.Get("X-Seen") != "POST /a%2Fb/?q=1 api.example.com" {
			t.Errorf("%d bytes: %d %v %d %v %v", len(body), res.StatusCode, err, len(got), res.Header, res.Trailer)
		}
		res.Body.Close()
	}
}
