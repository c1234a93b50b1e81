package checkapi_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// server is an API on a TCP listener.
type server struct{ url string }

func newServer(t testing.TB, h http.Handler) *server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return &server{s.URL}
}

func (s *server) ask(t testing.TB, path, body string) *answered {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Error(err)
		return &answered{}
	}
	defer resp.Body.Close()
	return read(t, r, resp)
}
