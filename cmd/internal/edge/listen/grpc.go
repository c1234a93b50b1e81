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

// GRPC is how the gRPC server is made. Zero numbers and durations mean the defaults.
type GRPC struct {
	Endpoint

	MaxStreams      uint32        // requests at once on a connection; default [DefaultMaxStreams]
	MaxHeaderBytes  uint32        // of a request; default [DefaultMaxHeaderBytes]
	MaxMessageBytes int           // of a request; default [DefaultMaxMessageBytes]
	MaxAge          time.Duration // of a connection, give or take a tenth, so that clients spread again; default [DefaultMaxAge]
	MaxAgeGrace     time.Duration // how much longer its requests may take; default [DefaultMaxAgeGrace]

	HealthNames []string // that the health service answers for, besides ""
	Reflection  bool     // the services can be asked for, as grpcurl does
	// Health stands before the health service, to count what it is asked, say. Nil: nothing does.
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
	// grpcWindow is what a client may send of one request that nobody has read.
	grpcWindow = 64 << 10

	handshake = 5 * time.Second // until a connection has said that it speaks HTTP/2, TLS included
	// A client that says nothing for this long is asked whether it is still there, and given up if it does not answer.
	quiet, answer = time.Minute, 20 * time.Second
	// pings is how often a client may ask the same. Envoys do it every few seconds where they were told to.
	pings = 5 * time.Second
	// streamWorkers is how many goroutines wait for requests. A new one for each would grow its stack each time, which was
	// a quarter of all work; requests beyond these still get one of their own. More do not help, not even when twenty times
	// as many ask: they take turns, so that the one whose turn it is has lost its place in the processor's cache.
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
		// Without these, windows grow to 16 MiB as fast as a client sends, for each of its requests.
		grpc.InitialWindowSize(grpcWindow),
		grpc.InitialConnWindowSize(gatewayWindow),
		grpc.ConnectionTimeout(handshake),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pings, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionAge: cfg.MaxAge, MaxConnectionAgeGrace: cfg.MaxAgeGrace, Time: quiet, Timeout: answer,
		}),
		grpc.WaitForHandlers(true), // or what they use is closed under them
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
