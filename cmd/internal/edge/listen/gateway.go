package listen

import (
	"context"
	"log"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// Gateway is how the listener of a proxy is made. It speaks HTTP/1 and HTTP/2, also without TLS to clients that know. The
// handler bounds how long bodies take, since a stream may last.
type Gateway struct {
	Address        string // host:port, or unix:///path/to.sock
	TLS            TLS
	MaxConnections int // at once; default [DefaultMaxConnections]
	MaxPerAddress  int // connections at once of one address, IPv6 by /64; 0: not bounded
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
	// Flow control: what a client may send that nobody has read, on a connection and of one request. Sixteen requests whose
	// bodies are not read leave the others of their connection without room.
	gatewayWindow, gatewayStreamWindow = 1 << 20, 64 << 10
	// leaving is how long clients that hold connections open have to notice that they should go, and reading how long they
	// have to send the first request on a new one.
	leaving, reading = 400 * time.Millisecond, 100 * time.Millisecond
)

func (s *Server) newGateway(cfg *Gateway) (part, error) {
	setDefault(&cfg.MaxHeaderBytes, DefaultGatewayHeaderBytes)
	setDefault(&cfg.MaxStreams, DefaultMaxStreams)
	server := &http.Server{
		Handler: closeOld(cfg.Handler), DisableGeneralOptionsHandler: true, ReadHeaderTimeout: readHeader, IdleTimeout: idle, MaxHeaderBytes: cfg.MaxHeaderBytes,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: cfg.MaxStreams, SendPingTimeout: gatewayQuiet, PingTimeout: answer, WriteByteTimeout: writeAll,
			MaxReceiveBufferPerConnection: gatewayWindow, MaxReceiveBufferPerStream: gatewayStreamWindow,
		},
		Protocols: new(http.Protocols),
		ErrorLog:  log.New(errorLog{s.log}, "", 0),
	}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetHTTP2(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	if cfg.TLS.On() {
		c, err := newCertificates(cfg.TLS, "h2", "http/1.1")
		if err != nil {
			return part{}, err
		}
		s.certificates = append(s.certificates, c)
		server.TLSConfig = c.config()
	}
	watch(server, cfg.Malformed)
	base, cut := context.WithCancel(context.Background())
	var listener atomic.Pointer[net.Listener]
	server.BaseContext = func(net.Listener) context.Context { return base }
	return part{
		serve: func(l net.Listener) error {
			listener.Store(&l)
			if server.TLSConfig != nil {
				return server.ServeTLS(l, "", "")
			}
			return server.Serve(l)
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
