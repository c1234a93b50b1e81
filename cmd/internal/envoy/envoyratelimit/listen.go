package envoyratelimit

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/sluiceproject/sluice/cmd/internal/edge/listen"
	"github.com/sluiceproject/sluice/cmd/internal/edge/rls"
)

// forever is the maximum age of connections without a bound.
const forever = time.Duration(math.MaxInt64)

// listen opens the listeners and starts serving the debug pages.
func (p *program) listen() error {
	s := p.settings
	config := listen.Config{
		GRPC: listen.GRPC{
			Endpoint:    listen.Endpoint{Address: net.JoinHostPort(s.GRPC.Host, strconv.Itoa(s.GRPC.Port))},
			MaxAge:      cmp.Or(s.GRPC.MaxAge, forever),
			MaxAgeGrace: cmp.Or(s.GRPC.MaxAgeGrace, forever), MaxMessageBytes: p.bounds.GRPCLimit(), HealthNames: []string{serviceName},
			Options:  []grpc.ServerOption{rls.ServerOption()},
			Register: func(r grpc.ServiceRegistrar) { rls.Register(r, &timed{p.service}, p.bounds) },
			Health:   func(h healthpb.HealthServer) healthpb.HealthServer { return &checks{h, p.stats} },
		},
		HTTP: listen.HTTP{
			Endpoint: listen.Endpoint{Address: net.JoinHostPort(s.Host, strconv.Itoa(s.Port))},
			Handler:  servicePages(&jsonPage{p.service, p.bounds, p.log}, p.ready),
		},
		Log: p.log,
	}
	if s.GRPC.Socket != "" {
		config.GRPC.Address = "unix://" + s.GRPC.Socket
	}
	if s.GRPC.UseTLS {
		config.GRPC.TLS = listen.TLS{Cert: s.GRPC.Cert, Key: s.GRPC.Key, ClientCA: s.GRPC.ClientCA}
		if s.GRPC.ClientName != "" {
			config.GRPC.TLS.ClientNames = []string{s.GRPC.ClientName}
		}
	}
	debug := newHTTP(debugPages(p.service.Dump, p.stats), 5*time.Minute)
	if err := p.serveHTTP("debug", net.JoinHostPort(s.DebugHost, strconv.Itoa(s.DebugPort)), debug); err != nil {
		return err
	}
	var err error
	if p.server, err = listen.New(config); err != nil {
		return err
	}
	p.ready.onChange(p.server.SetReady)
	p.log.Warn("listening", "protocol", "gRPC", "address", p.server.GRPCAddr().String())
	p.log.Warn("listening", "protocol", "HTTP", "address", p.server.HTTPAddr().String())
	return nil
}

// newHTTP returns a server with timeouts; longest is its write timeout.
func newHTTP(h http.Handler, longest time.Duration) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: longest,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: listen.DefaultMaxHeaderBytes,
	}
}

func (p *program) serveHTTP(protocol, addr string, server *http.Server) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("listening for %s: %w", protocol, err)
	}
	p.log.Warn("listening", "protocol", protocol, "address", l.Addr().String())
	p.http = append(p.http, server)
	p.in(func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			p.fail(err)
		}
	})
	return nil
}
