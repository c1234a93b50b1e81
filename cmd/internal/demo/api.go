package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// api is the running demo API, which has no rate limits itself.
type api struct {
	address string
	close   func()
}

// startAPI starts the API on a free port.
func startAPI() (*api, error) {
	listener, err := net.Listen("tcp", freePort)
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: apiHandler(), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			panic(err) // because a loopback listener does not fail
		}
	}()
	return &api{listener.Addr().String(), func() { _ = server.Close(); <-ended }}, nil
}

func apiHandler() http.Handler {
	mux := http.NewServeMux()
	respond := func(status int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			fmt.Fprintln(w, text)
		}
	}
	mux.Handle("GET /hello", respond(http.StatusOK, "hello"))
	mux.Handle("POST /posts", respond(http.StatusCreated, "posted"))
	mux.Handle("GET /posts/{id}", respond(http.StatusOK, "a post"))
	mux.Handle("POST /accounts", respond(http.StatusCreated, "welcome"))
	mux.Handle("POST /rewards", respond(http.StatusCreated, "a reward"))
	mux.Handle("POST /exports", respond(http.StatusOK, "the export is done"))
	mux.Handle("GET /thumbnails/{name}", respond(http.StatusOK, "a thumbnail"))
	mux.HandleFunc("GET /downloads/{name}", download)
	mux.HandleFunc("GET /login", login)
	return mux
}

// download responds after 2 s, so that several downloads are in flight at the same time.
func download(w http.ResponseWriter, r *http.Request) {
	if pause(r.Context(), 2*time.Second) {
		fmt.Fprintln(w, "a large file")
	}
}

func login(w http.ResponseWriter, r *http.Request) {
	if _, password, _ := r.BasicAuth(); password != "sesame" {
		http.Error(w, "wrong password", http.StatusUnauthorized)
		return
	}
	fmt.Fprintln(w, "welcome")
}

// pause waits for d, or until ctx is done, and reports whether all of d has passed.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
