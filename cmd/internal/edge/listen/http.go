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

// HTTP is how the HTTP server is made. It answers /livez, always, and /readyz, with 503 while it is not ready or on its
// way out; Handler answers the rest.
type HTTP struct {
	Endpoint
	Handler http.Handler
	// Unready returns why requests cannot be served in full though the server is ready, or nil. Nil: never.
	Unready func() error
	// Malformed is called for requests of HTTP/1 that no handler sees because they cannot be read, unless they come over
	// TLS, and returns their ID for the response. Nil: they have none.
	Malformed func(peer net.Addr, status int) (id string)
}

// Times that no client exceeds that means well.
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

// newHTTPServer is what servers of HTTP have in common, that of the gateway included.
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

// Gateway is how the listener of a proxy is made. It speaks HTTP/1 and HTTP/2, also without TLS to clients that know. The
// handler bounds how long bodies take, since a stream may last.
type Gateway struct {
	Endpoint
	MaxHeaderBytes int // of a request; default [DefaultGatewayHeaderBytes]
	MaxStreams     int // requests at once on a connection of HTTP/2; default [DefaultMaxStreams]
	Handler        http.Handler

	// Malformed is called for requests of HTTP/1 that no handler sees because they cannot be read, unless they come over
	// TLS, and returns their ID for the response. Nil: they have none.
	Malformed func(peer net.Addr, status int) (id string)
	// OnDrain is called when the server is to end, and has clients told to connect elsewhere. Nil: they are not.
	OnDrain func()
	// Wait returns when no request is left, also of those whose connection the handler has taken over. It returns an error
	// if the context ends before. Nil: there are none.
	Wait func(context.Context) error
}

// DefaultGatewayHeaderBytes is enough for the cookies and tokens that people send.
const DefaultGatewayHeaderBytes = 64 << 10

const (
	// A connection of HTTP/2 on which nothing comes for this long is asked whether it is still there.
	gatewayQuiet = 30 * time.Second
	// Flow control: what a client may send that is not yet read, on a connection and of one request. Sixteen requests whose
	// bodies are not read leave the others of their connection without room.
	gatewayWindow, gatewayStreamWindow = 1 << 20, 64 << 10
	// leaving is how long clients that hold connections open have to notice that they should go, and reading how long they
	// have to send the first request on a new one.
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
			defer cut() // connections that the handler has taken over are not the server's to close
			return drainGateway(ctx, server, listener.Load(), cfg)
		},
	}, nil
}

// drainGateway first has clients close their connections by themselves, and then has requests read that are on new ones:
// the server's own end would leave both without an answer.
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

// Custom is how the server of a protocol is made that this package does not know.
type Custom struct {
	Name string
	Endpoint

	// Serve answers until the listener is closed.
	Serve func(net.Listener) error
	// Drain closes the listener, answers what was asked, and cuts off who is not done when the context ends; then it
	// returns an error.
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
