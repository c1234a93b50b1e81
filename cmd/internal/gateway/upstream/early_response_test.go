package upstream_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/upstream"
)

// A server responds before it has read the request, which the caller sends slowly: the caller gets the response, and the request
// ends.
func TestEarlyResponse(t *testing.T) {
	eachWay(t, func(t *testing.T, to func(string) upstream.Config) {
		at := origin(t, func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).EnableFullDuplex()
			http.Error(w, "too large", http.StatusRequestEntityTooLarge)
		})
		done := make(chan struct{}, 1)
		gw, g := gatewayWith(t, to(at), func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer func() { done <- struct{}{} }() // also if the connection is closed because of the unread body
				h.ServeHTTP(w, r)
			})
		})
		for _, length := range []int64{-1, 1 << 30} {
			body, out := io.Pipe()
			r, err := http.NewRequestWithContext(t.Context(), "POST", gw.URL, body)
			if err != nil {
				t.Fatal(err)
			}
			r.ContentLength = length
			go func() { _, _ = out.Write([]byte("x")) }() // and nothing more
			if got := do(t, client(t), r); got.status != 413 || got.body != "too large\n" {
				t.Errorf("length %d: %+v", length, got)
			}
			<-done
			out.Close()
		}
		if s := g.Status()[0]; s.InFlight != 0 || s.Failures != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// A body that exceeds the gateway's maximum is an error of the caller.
func TestTooLarge(t *testing.T) {
	eachWay(t, func(t *testing.T, to func(string) upstream.Config) {
		at := origin(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
		gw, g := gatewayWith(t, to(at), func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.Body = http.MaxBytesReader(w, r.Body, 10)
				h.ServeHTTP(w, r)
			})
		})
		for _, size := range []int{11, 100_000} {
			r := request(t, "POST", gw.URL, string(make([]byte, size)))
			if size > 1000 {
				r.ContentLength = -1
			}
			if got := do(t, client(t), r); got.status != 413 || got.header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%d bytes: %+v", size, got)
			}
		}
		if s := g.Status()[0]; s.Failures != 0 {
			t.Errorf("%+v", s)
		}
	})
}
