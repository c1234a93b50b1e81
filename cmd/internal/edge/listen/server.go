package listen

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/sluiceproject/sluice/cmd/internal/edge/shares"
)

// Config is the configuration of a [Server]. Zero fields mean the defaults; a listener without an address is disabled.
type Config struct {
	GRPC  GRPC
	HTTP  HTTP
	Admin HTTP // admin API
	// Gateway is the listener of the reverse proxy.
	Gateway Gateway
	Custom  []Custom

	// DrainDelay is the time between failing health checks and closing the listeners, for load balancers to notice. Default 0:
	// gRPC clients get a GOAWAY frame anyway.
	DrainDelay time.Duration
	// DrainTimeout is the maximum time for requests in flight to finish after that. Default [DefaultDrainTimeout].
	DrainTimeout time.Duration

	// Exempt reports whether MaxPerAddress does not apply to an address, because it is a proxy of many clients. Nil: it applies
	// to all.
	Exempt func(netip.Addr) bool

	Log *slog.Logger // default slog.Default()
}

// Endpoint is the address of a listener, its TLS configuration and the maximum number of connections.
type Endpoint struct {
	Address        string // host:port, or unix:///path/to.sock
	TLS            TLS
	MaxConnections int // default [DefaultMaxConnections]
	MaxPerAddress  int // connections per address, IPv6 by /64; 0: unlimited
}

// DefaultDrainTimeout is less than the 30 s after which Kubernetes kills a process.
const DefaultDrainTimeout = 20 * time.Second

// Server runs the servers of several protocols, which start and shut down together.
type Server struct {
	cfg    Config
	log    *slog.Logger
	health *health.Server
	ready  atomic.Bool // for health checks

	unavailable atomic.Pointer[error] // see SetUnavailable; nil: available

	dry    bool // check only: listen on and create nothing
	faults []error

	addresses []named // of all listeners

	parts        []part
	certificates []*certificates
}

// named is the address of a listener.
type named struct{ name, address string }

// part is the server of one listener.
type part struct {
	name     string
	listener net.Listener
	serve    func(net.Listener) error
	drain    func(ctx context.Context) error // waits for requests in flight; aborts the remaining ones when ctx is done
}

// New opens the listeners, so that their addresses are known; [Server.Run] serves. A server that is not run must be closed with
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

// Check returns the errors of New, except those about TCP addresses, because it does not listen. It creates nothing. The warnings
// are about certificates that are not valid now.
func Check(cfg Config) (warnings []error, err error) {
	if in := cfg.Gateway.TLS.ACME; in != nil {
		acme := *in
		acme.dry = true
		cfg.Gateway.TLS.ACME = &acme
	}
	s := &Server{cfg: cfg, log: slog.New(slog.DiscardHandler), health: health.NewServer(), dry: true}
	defer s.Close()
	err = s.listen()
	for _, c := range s.certificates {
		warnings = append(warnings, c.invalid(time.Now())...)
	}
	return warnings, errors.Join(append(s.faults, err)...)
}

func (s *Server) listen() error {
	for _, l := range []struct {
		name  string
		at    *Endpoint
		build func() (part, error)
	}{
		{"gRPC", &s.cfg.GRPC.Endpoint, func() (part, error) { return s.newGRPC(&s.cfg.GRPC) }},
		{"HTTP", &s.cfg.HTTP.Endpoint, func() (part, error) { return s.newHTTP(&s.cfg.HTTP) }},
		{"admin", &s.cfg.Admin.Endpoint, func() (part, error) { return s.newHTTP(&s.cfg.Admin) }},
		{"gateway", &s.cfg.Gateway.Endpoint, func() (part, error) { return s.newGateway(&s.cfg.Gateway) }},
	} {
		if l.at.Address == "" {
			continue
		}
		if err := s.add(l.name, l.at, l.build); err != nil {
			return err
		}
	}
	if err := s.listenACME(); err != nil {
		return err
	}
	for i := range s.cfg.Custom {
		cfg := &s.cfg.Custom[i]
		if err := s.add(cfg.Name, &cfg.Endpoint, func() (part, error) { return s.newCustom(cfg) }); err != nil {
			return err
		}
	}
	return nil
}

// add builds a server and opens its listener.
func (s *Server) add(name string, at *Endpoint, build func() (part, error)) error {
	p, err := build()
	if err == nil {
		err = s.taken(at.Address)
	}
	if err == nil && s.dry {
		err = checkAddress(at.Address)
	}
	s.addresses = append(s.addresses, named{name, at.Address})
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	if s.dry {
		s.faults = append(s.faults, err)
		return nil
	}
	if err != nil {
		return err
	}
	p.name = name
	c := connections{max: cmp.Or(at.MaxConnections, DefaultMaxConnections), exempt: s.cfg.Exempt}
	if at.MaxPerAddress > 0 {
		c.shares = shares.NewCounter[netip.Prefix](at.MaxPerAddress)
	}
	if p.listener, err = listen(at.Address, c); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	s.parts = append(s.parts, p)
	return nil
}

// taken returns an error if an earlier listener uses the address.
func (s *Server) taken(address string) error {
	for _, other := range s.addresses {
		if overlap(address, other.address) {
			return fmt.Errorf("address: %s: the %s listener of this configuration uses %s: choose another address for one of them", address, other.name, other.address)
		}
	}
	return nil
}

// GRPCAddr returns the address of the gRPC listener, or nil.
func (s *Server) GRPCAddr() net.Addr { return s.Addr("gRPC") }

// HTTPAddr returns the address of the HTTP listener, or nil.
func (s *Server) HTTPAddr() net.Addr { return s.Addr("HTTP") }

// AdminAddr returns the address of the admin listener, or nil.
func (s *Server) AdminAddr() net.Addr { return s.Addr("admin") }

// GatewayAddr returns the address of the gateway's listener, or nil.
func (s *Server) GatewayAddr() net.Addr { return s.Addr("gateway") }

// Addr returns the address of the listener with a name, or nil.
func (s *Server) Addr(name string) net.Addr {
	for i := range s.parts {
		if s.parts[i].name == name {
			return s.parts[i].listener.Addr()
		}
	}
	return nil
}

// SetReady sets the result of health checks. A new server is ready.
func (s *Server) SetReady(ready bool) {
	s.ready.Store(ready)
	s.setServing(ready)
}

// SetUnavailable makes health checks fail with a reason, or succeed again if it is nil. It must not be called concurrently. Health
// checks of a server that is shutting down fail anyway.
func (s *Server) SetUnavailable(reason error) {
	s.unavailable.Store(&reason)
	s.setServing(reason == nil)
}

func (s *Server) setServing(ready bool) {
	status := healthpb.HealthCheckResponse_NOT_SERVING
	if ready {
		status = healthpb.HealthCheckResponse_SERVING
	}
	s.health.SetServingStatus("", status)
	for _, name := range s.cfg.GRPC.HealthNames {
		s.health.SetServingStatus(name, status)
	}
}

// Unready returns why /readyz responds with 503, or nil.
func (s *Server) Unready() error {
	switch {
	case !s.ready.Load():
		return errors.New("shutting down")
	case s.unavailable.Load() != nil && *s.unavailable.Load() != nil:
		return *s.unavailable.Load()
	case s.cfg.HTTP.Unready != nil:
		return s.cfg.HTTP.Unready()
	}
	return nil
}

// Reload reloads changed certificates now. If that fails, the last valid ones stay in use.
func (s *Server) Reload() {
	for _, c := range s.certificates {
		c.log(s.log)
	}
}

// Run serves until ctx is done, and then shuts down gracefully. It returns an error if a listener fails.
func (s *Server) Run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var running sync.WaitGroup
	for _, p := range s.parts {
		running.Go(func() {
			err := p.serve(p.listener)
			switch {
			case err == nil, errors.Is(err, http.ErrServerClosed), errors.Is(err, grpc.ErrServerStopped), errors.Is(err, net.ErrClosed):
			default:
				stop(fmt.Errorf("%s: %w", p.name, err))
			}
		})
	}
	for _, c := range s.certificates {
		running.Go(func() { c.watch(ctx, s.log) })
		if c.acme != nil {
			running.Go(func() { c.acme.run(ctx, s.log) })
		}
	}
	<-ctx.Done()
	s.drain()
	running.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// drain shuts down gracefully: health checks fail, clients are asked to reconnect elsewhere, requests in flight finish. Requests
// that exceed DrainTimeout are aborted.
func (s *Server) drain() {
	s.log.Info("draining", "delay", s.cfg.DrainDelay, "timeout", s.cfg.DrainTimeout)
	s.ready.Store(false)
	s.health.Shutdown()
	if s.cfg.DrainDelay > 0 {
		<-time.After(s.cfg.DrainDelay)
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.DrainTimeout)
	defer cancel()
	var draining sync.WaitGroup
	for _, p := range s.parts {
		draining.Go(func() {
			if err := p.drain(ctx); err != nil {
				s.log.Warn("drain timeout exceeded: connections closed", "listener", p.name)
			}
		})
	}
	draining.Wait()
}

// Close closes a server that is not run.
func (s *Server) Close() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, p := range s.parts {
		_ = p.drain(ctx)
		_ = p.listener.Close()
	}
}
