package listen

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// HTTP is the configuration of the HTTP server. The server itself responds to /livez, always with 200, and to /readyz, with 503
// while it is not ready or shutting down. Handler serves all other requests.
type HTTP struct {
	Endpoint
	Handler http.Handler
	// Unready returns an additional reason for /readyz to fail, or nil. The function may be nil.
	Unready func() error
	// Malformed is called for malformed HTTP/1 requests without TLS, which do not reach the handler. It returns the request ID
	// for the response. It may be nil: no ID.
	Malformed func(peer net.Addr, status int) (id string)
}

// Timeouts that well-behaved clients do not exceed.
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
	server, err := s.newHTTPServer(mux, cfg.TLS, cfg.Malformed)
	if err != nil {
		return part{}, err
	}
	server.ReadTimeout, server.WriteTimeout, server.MaxHeaderBytes = readAll, writeAll, DefaultMaxHeaderBytes
	return part{
		serve: func(l net.Listener) error { return serveHTTP(server, l) },
		drain: func(ctx context.Context) error {
			err := server.Shutdown(ctx)
			if err != nil {
				_ = server.Close()
			}
			return err
		},
	}, nil
}

// newHTTPServer returns an HTTP server with the settings that all have in common, that of the gateway included.
func (s *Server) newHTTPServer(h http.Handler, files TLS, malformed func(peer net.Addr, status int) (id string)) (*http.Server, error) {
	secure, err := s.secure(files, "h2", "http/1.1")
	if err != nil {
		return nil, err
	}
	server := &http.Server{
		Handler: closeOld(h), DisableGeneralOptionsHandler: true, ReadHeaderTimeout: readHeader, IdleTimeout: idle,
		TLSConfig: secure,
		ErrorLog:  log.New(errorLog{s.log}, "", 0),
	}
	watch(server, malformed)
	return server, nil
}

func serveHTTP(server *http.Server, l net.Listener) error {
	if server.TLSConfig != nil {
		return server.ServeTLS(l, "", "")
	}
	return server.Serve(l)
}

// closeOld closes the connection after each HTTP/1.0 request. net/http silently ignores Transfer-Encoding in them, so a proxy
// in front that does not could see the end of the request elsewhere (request smuggling).
func closeOld(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !r.ProtoAtLeast(1, 1) {
			w.Header()["Connection"] = connectionClose
		}
		h.ServeHTTP(w, r)
	})
}

var connectionClose = []string{"close"}

// errorLog receives the error log of an HTTP server: mostly clients that do not speak HTTP, and panics of handlers.
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

// Gateway is the configuration of a reverse proxy's listener. It serves HTTP/1 and HTTP/2, without TLS also by prior knowledge
// (h2c). The handler has to bound the time of bodies, because streams may be long-lived.
type Gateway struct {
	Endpoint
	MaxHeaderBytes int // of a request; default [DefaultGatewayHeaderBytes]
	MaxStreams     int // concurrent requests per HTTP/2 connection; default [DefaultMaxStreams]
	Handler        http.Handler

	// Malformed is called for malformed HTTP/1 requests without TLS, which do not reach the handler. It returns the request ID
	// for the response. It may be nil: no ID.
	Malformed func(peer net.Addr, status int) (id string)
	// OnDrain is called when the shutdown begins, to ask clients to reconnect elsewhere (Connection: close). It may be nil.
	OnDrain func()
	// Wait returns when no request is left, including those on hijacked connections. It returns an error if ctx is done before.
	// It may be nil if the handler hijacks no connections.
	Wait func(context.Context) error
}

// DefaultGatewayHeaderBytes is enough for usual cookies and tokens.
const DefaultGatewayHeaderBytes = 64 << 10

const (
	// After gatewayQuiet without a frame an HTTP/2 client gets a ping.
	gatewayQuiet = 30 * time.Second
	// Flow control windows of a connection and of a request: the number of unread bytes that a client may send. Sixteen requests
	// with unread bodies block the other requests of their connection.
	gatewayWindow, gatewayStreamWindow = 1 << 20, 64 << 10
	// leaving is the time for clients with open connections to notice Connection: close, and reading the time to send the first
	// request on a new connection.
	leaving, reading = 400 * time.Millisecond, 100 * time.Millisecond
)

func (s *Server) newGateway(cfg *Gateway) (part, error) {
	setDefault(&cfg.MaxHeaderBytes, DefaultGatewayHeaderBytes)
	setDefault(&cfg.MaxStreams, DefaultMaxStreams)
	server, err := s.newHTTPServer(cfg.Handler, cfg.TLS, cfg.Malformed)
	if err != nil {
		return part{}, err
	}
	server.MaxHeaderBytes = cfg.MaxHeaderBytes
	server.HTTP2 = &http.HTTP2Config{
		MaxConcurrentStreams: cfg.MaxStreams, SendPingTimeout: gatewayQuiet, PingTimeout: answer, WriteByteTimeout: writeAll,
		MaxReceiveBufferPerConnection: gatewayWindow, MaxReceiveBufferPerStream: gatewayStreamWindow,
	}
	server.Protocols = new(http.Protocols)
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetHTTP2(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	base, cut := context.WithCancel(context.Background())
	var listener atomic.Pointer[net.Listener]
	server.BaseContext = func(net.Listener) context.Context { return base }
	return part{
		serve: func(l net.Listener) error {
			listener.Store(&l)
			return serveHTTP(server, l)
		},
		drain: func(ctx context.Context) error {
			defer cut() // hijacked connections are not closed by the server
			return drainGateway(ctx, server, listener.Load(), cfg)
		},
	}, nil
}

// drainGateway first lets clients close their connections, and then reads requests that were sent on new connections.
// http.Server.Shutdown alone would drop both without a response.
func drainGateway(ctx context.Context, server *http.Server, l *net.Listener, cfg *Gateway) error {
	if cfg.OnDrain != nil {
		cfg.OnDrain()
		pause(ctx, leaving)
	}
	if l != nil {
		_ = (*l).Close()
		pause(ctx, reading)
	}
	err := server.Shutdown(ctx)
	if err == nil && cfg.Wait != nil {
		err = cfg.Wait(ctx)
	}
	if err != nil {
		_ = server.Close()
	}
	return err
}

// Custom is the configuration of a server with a protocol that this package does not implement.
type Custom struct {
	Name string
	Endpoint

	// Serve serves until the listener is closed.
	Serve func(net.Listener) error
	// Drain closes the listener and waits for requests in flight. When ctx is done, it aborts the remaining ones and returns an
	// error.
	Drain func(ctx context.Context) error
}

func (s *Server) newCustom(cfg *Custom) (part, error) {
	secure, err := s.secure(cfg.TLS)
	p := part{serve: cfg.Serve, drain: cfg.Drain}
	if secure != nil {
		p.serve = func(l net.Listener) error { return cfg.Serve(tls.NewListener(l, secure)) }
	}
	return p, err
}
