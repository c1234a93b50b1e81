package listen

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
)

// GRPC is the configuration of the gRPC server. Zero numbers and durations mean the defaults.
type GRPC struct {
	Endpoint

	MaxStreams      uint32        // concurrent requests per connection; default [DefaultMaxStreams]
	MaxHeaderBytes  uint32        // of a request; default [DefaultMaxHeaderBytes]
	MaxMessageBytes int           // of a request; default [DefaultMaxMessageBytes]
	MaxAge          time.Duration // of a connection, ± 10 %, so that clients reconnect to all instances; default [DefaultMaxAge]
	MaxAgeGrace     time.Duration // additional time for its requests in flight; default [DefaultMaxAgeGrace]

	HealthNames []string // services of the health service, besides ""
	Reflection  bool     // enable server reflection
	// Health wraps the health service, for example to count its requests. It may be nil.
	Health func(healthpb.HealthServer) healthpb.HealthServer

	Options  []grpc.ServerOption
	Register func(grpc.ServiceRegistrar)
}

// Defaults of [GRPC] and [HTTP].
const (
	DefaultMaxConnections  = 10_000
	DefaultMaxStreams      = 250
	DefaultMaxHeaderBytes  = 16 << 10
	DefaultMaxMessageBytes = 64 << 10
	DefaultMaxAge          = 30 * time.Minute
	DefaultMaxAgeGrace     = time.Minute
)

const (
	// grpcWindow is the flow control window of a request: the number of unread bytes that a client may send.
	grpcWindow = 64 << 10

	handshake = 5 * time.Second // timeout of the TLS and HTTP/2 handshakes
	// After quiet without a frame a client gets a ping, and its connection is closed if it does not reply within answer.
	quiet, answer = time.Minute, 20 * time.Second
	// pings is the minimum interval of pings from clients. Envoy can be configured to ping every few seconds.
	pings = 5 * time.Second
	// streamWorkers is the number of goroutines that serve requests. A new goroutine per request would grow its stack each
	// time, which took 25 % of the CPU time; only requests beyond this number get one. More workers do not help even with 20 times
	// as many concurrent requests: they run in turn, and each finds its data evicted from the CPU cache.
	streamWorkers = 64
)

func (s *Server) newGRPC(cfg *GRPC) (part, error) {
	setDefault(&cfg.MaxStreams, DefaultMaxStreams)
	setDefault(&cfg.MaxHeaderBytes, DefaultMaxHeaderBytes)
	setDefault(&cfg.MaxMessageBytes, DefaultMaxMessageBytes)
	setDefault(&cfg.MaxAge, DefaultMaxAge)
	setDefault(&cfg.MaxAgeGrace, DefaultMaxAgeGrace)
	options := []grpc.ServerOption{
		grpc.MaxConcurrentStreams(cfg.MaxStreams),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.MaxHeaderListSize(cfg.MaxHeaderBytes),
		grpc.MaxRecvMsgSize(cfg.MaxMessageBytes),
		// Without these, the window of each request grows up to 16 MiB for a fast client.
		grpc.InitialWindowSize(grpcWindow),
		grpc.InitialConnWindowSize(gatewayWindow),
		grpc.ConnectionTimeout(handshake),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pings, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionAge: cfg.MaxAge, MaxConnectionAgeGrace: cfg.MaxAgeGrace, Time: quiet, Timeout: answer,
		}),
		grpc.WaitForHandlers(true), // because the store is closed afterwards
	}
	secure, err := s.secure(cfg.TLS, "h2")
	if err != nil {
		return part{}, err
	}
	if secure != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(secure)))
	}
	server := grpc.NewServer(append(options, cfg.Options...)...)
	var checks healthpb.HealthServer = s.health
	if cfg.Health != nil {
		checks = cfg.Health(checks)
	}
	healthpb.RegisterHealthServer(server, checks)
	if cfg.Register != nil {
		cfg.Register(server)
	}
	if cfg.Reflection {
		reflection.Register(server)
	}
	return part{
		serve: server.Serve,
		drain: func(ctx context.Context) error {
			cut := context.AfterFunc(ctx, server.Stop)
			server.GracefulStop()
			if !cut() {
				return context.Cause(ctx)
			}
			return nil
		},
	}, nil
}

func setDefault[T int | uint32 | time.Duration](v *T, to T) {
	if *v <= 0 {
		*v = to
	}
}
