package listen

import (
	"context"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"
)

// HTTP is how the HTTP server is made. It answers /livez, always, and /readyz, with 503 while it is not ready or on its
// way out; Handler answers the rest.
type HTTP struct {
	Address        string // host:port, or unix:///path/to.sock
	TLS            TLS
	MaxConnections int // at once; default [DefaultMaxConnections]
	MaxPerAddress  int // connections at once of one address, IPv6 by /64; 0: not bounded
	Handler        http.Handler
	// Unready returns why requests cannot be served in full though the server is ready, or nil. Nil: never.
	Unready func() error
	// Malformed is called for requests of HTTP/1 that no handler sees because they cannot be read, unless they come over
	// TLS, and returns their ID for the response. Nil: they have none.
	Malformed func(peer net.Addr, status int) (id string)
}

// Times that nobody needs who means well.
const (
	readHeader = 5 * time.Second
	readAll    = 10 * time.Second
	writeAll   = 30 * time.Second
	idle       = 2 * time.Minute
)

func (s *Server) newHTTP(cfg *HTTP) (part, error) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { say(w, http.StatusOK, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := s.Unready(); err != nil {
			say(w, http.StatusServiceUnavailable, "not ready: "+err.Error()+"\n")
			return
		}
		say(w, http.StatusOK, "ok\n")
	})
	if cfg.Handler != nil {
		mux.Handle("/", cfg.Handler)
	}
	server := &http.Server{
		Handler: closeOld(mux), DisableGeneralOptionsHandler: true, ReadHeaderTimeout: readHeader, ReadTimeout: readAll, WriteTimeout: writeAll, IdleTimeout: idle,
		MaxHeaderBytes: DefaultMaxHeaderBytes,
		ErrorLog:       log.New(errorLog{s.log}, "", 0),
	}
	if cfg.TLS.On() {
		c, err := newCertificates(cfg.TLS, "h2", "http/1.1")
		if err != nil {
			return part{}, err
		}
		s.certificates = append(s.certificates, c)
		server.TLSConfig = c.config()
	}
	watch(server, cfg.Malformed)
	return part{
		serve: func(l net.Listener) error {
			if server.TLSConfig != nil {
				return server.ServeTLS(l, "", "")
			}
			return server.Serve(l)
		},
		drain: func(ctx context.Context) error {
			err := server.Shutdown(ctx)
			if err != nil {
				_ = server.Close()
			}
			return err
		},
	}, nil
}

// closeOld ends the connection after each request of HTTP/1.0. net/http ignores its Transfer-Encoding without a word, so a
// proxy before us that does not could take another place for the end of the request.
func closeOld(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !r.ProtoAtLeast(1, 1) {
			w.Header()["Connection"] = connectionClose
		}
		h.ServeHTTP(w, r)
	})
}

var connectionClose = []string{"close"}

// errorLog is where the HTTP server complains: of clients that speak no HTTP, mostly, and of handlers that panic.
type errorLog struct{ log *slog.Logger }

func (l errorLog) Write(b []byte) (int, error) {
	text, level := strings.TrimSpace(string(b)), slog.LevelDebug
	if strings.HasPrefix(text, "http: panic serving") {
		level = slog.LevelError
	}
	l.log.Log(context.Background(), level, text)
	return len(b), nil
}

func say(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}
