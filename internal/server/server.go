package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// Config is how a [Server] is made. Zero fields have defaults; a listener without an address is not there.
type Config struct {
	GRPC GRPC
	HTTP HTTP

	// DrainWait is how long the server goes on as before once it has said that it is going: load balancers that ask for
	// its health need that long to notice. Default 0: clients that speak gRPC are told on their connections.
	DrainWait time.Duration
	// DrainTimeout is how long requests that are being answered may take then. Default [DefaultDrainTimeout].
	DrainTimeout time.Duration

	Log *slog.Logger // default slog.Default()
}

// DefaultDrainTimeout is below the 30 s that Kubernetes waits before it kills.
const DefaultDrainTimeout = 20 * time.Second

// Server is a gRPC and an HTTP server that begin and end together.
type Server struct {
	cfg    Config
	log    *slog.Logger
	health *health.Server
	ready  atomic.Bool // what health checks say

	grpc         *grpc.Server
	grpcListener net.Listener
	http         *http.Server
	httpListener net.Listener
	certificates []*certificates
}

// New listens, so that the addresses are known and taken; [Server.Run] answers. A server that is never run is closed with
// [Server.Close].
func New(cfg Config) (*Server, error) {
	s := &Server{cfg: cfg, log: cfg.Log, health: health.NewServer()}
	if s.log == nil {
		s.log = slog.Default()
	}
	if s.cfg.DrainTimeout <= 0 {
		s.cfg.DrainTimeout = DefaultDrainTimeout
	}
	if err := s.listen(); err != nil {
		s.Close()
		return nil, err
	}
	s.SetReady(true)
	return s, nil
}

func (s *Server) listen() (err error) {
	if cfg := &s.cfg.GRPC; cfg.Address != "" {
		if s.grpc, err = s.newGRPC(cfg); err != nil {
			return fmt.Errorf("gRPC: %w", err)
		}
		if s.grpcListener, err = listen(cfg.Address, cfg.MaxConnections); err != nil {
			return fmt.Errorf("gRPC: %w", err)
		}
	}
	if cfg := &s.cfg.HTTP; cfg.Address != "" {
		if s.http, err = s.newHTTP(cfg); err != nil {
			return fmt.Errorf("HTTP: %w", err)
		}
		if s.httpListener, err = listen(cfg.Address, cfg.MaxConnections); err != nil {
			return fmt.Errorf("HTTP: %w", err)
		}
	}
	return nil
}

// GRPCAddr is where the gRPC server listens, or nil.
func (s *Server) GRPCAddr() net.Addr { return addr(s.grpcListener) }

// HTTPAddr is where the HTTP server listens, or nil.
func (s *Server) HTTPAddr() net.Addr { return addr(s.httpListener) }

func addr(l net.Listener) net.Addr {
	if l == nil {
		return nil
	}
	return l.Addr()
}

// SetReady has health checks say that requests can be answered, or that they cannot. A new server is ready.
func (s *Server) SetReady(ready bool) {
	s.ready.Store(ready)
	status := healthpb.HealthCheckResponse_NOT_SERVING
	if ready {
		status = healthpb.HealthCheckResponse_SERVING
	}
	s.health.SetServingStatus("", status)
	for _, name := range s.cfg.GRPC.HealthNames {
		s.health.SetServingStatus(name, status)
	}
}

// Reload reads the certificates again now, if they changed. The last good ones stay if that fails.
func (s *Server) Reload() {
	for _, c := range s.certificates {
		c.log(s.log)
	}
}

// Run answers until the context ends, and then until what was asked is answered. It returns an error if a listener fails.
func (s *Server) Run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var running sync.WaitGroup
	serve := func(name string, f func() error) {
		running.Go(func() {
			if err := f(); err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, grpc.ErrServerStopped) {
				stop(fmt.Errorf("%s: %w", name, err))
			}
		})
	}
	if s.grpc != nil {
		serve("gRPC", func() error { return s.grpc.Serve(s.grpcListener) })
	}
	if s.http != nil {
		serve("HTTP", func() error {
			if s.http.TLSConfig != nil {
				return s.http.ServeTLS(s.httpListener, "", "")
			}
			return s.http.Serve(s.httpListener)
		})
	}
	for _, c := range s.certificates {
		running.Go(func() { c.watch(ctx, s.log) })
	}
	<-ctx.Done()
	s.drain()
	running.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// drain says goodbye: health checks fail, clients are told to go elsewhere, what was asked is answered. Who takes too long
// is cut off.
func (s *Server) drain() {
	s.log.Info("draining", "wait", s.cfg.DrainWait, "timeout", s.cfg.DrainTimeout)
	s.ready.Store(false)
	s.health.Shutdown()
	if s.cfg.DrainWait > 0 {
		<-time.After(s.cfg.DrainWait)
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.DrainTimeout)
	defer cancel()
	var draining sync.WaitGroup
	if s.grpc != nil {
		cut := context.AfterFunc(ctx, func() {
			s.log.Warn("some gRPC clients did not go in time and were cut off")
			s.grpc.Stop()
		})
		draining.Go(func() {
			s.grpc.GracefulStop()
			cut()
		})
	}
	if s.http != nil {
		draining.Go(func() {
			if err := s.http.Shutdown(ctx); err != nil {
				s.log.Warn("some HTTP clients did not go in time and were cut off")
				_ = s.http.Close()
			}
		})
	}
	draining.Wait()
}

// Close ends a server that is not run.
func (s *Server) Close() {
	if s.grpc != nil {
		s.grpc.Stop()
	}
	for _, l := range []net.Listener{s.grpcListener, s.httpListener} {
		if l != nil {
			_ = l.Close()
		}
	}
}
