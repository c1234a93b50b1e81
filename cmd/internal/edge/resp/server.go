package resp

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/private"
)

// RuleName is the name of the rule of all CL.THROTTLE limits.
const RuleName = "resp"

// Config configures a [Server]. Zero fields have defaults.
type Config struct {
	// Password returns the SHA-256 of the password. It is called for each attempt. Nil means that no password is required.
	Password func() [sha256.Size]byte
	// Attempts limits failed attempts per client address. It must have one rule. Nil means no limit.
	Attempts *sluice.Limiter
	// OnFailure is the fail mode while the store is unavailable.
	OnFailure sluice.FailMode
	// IdleTime is the time without a command after which a connection is closed. Default [DefaultIdleTime].
	IdleTime time.Duration
	// CommandTime is the timeout for sending a command, for authenticating, and for reading replies. Default
	// [DefaultCommandTime].
	CommandTime time.Duration
	// Counted is called with the counts of replies whenever replies are written. It must be safe for concurrent use.
	Counted func(Counts)

	Log *slog.Logger // default slog.Default()
}

// Defaults of Config.
const (
	DefaultIdleTime    = 10 * time.Minute
	DefaultCommandTime = 10 * time.Second
)

// Counts are the numbers of commands by reply.
type Counts struct {
	Allowed, Denied int64 // CL.THROTTLE
	Other           int64 // other commands
	Errors          int64
}

// Server is a server for Redis clients.
type Server struct {
	limiter     *sluice.Limiter
	rule        *sluice.Rule
	remote      bool // the store is remote, so that decisions take a round trip
	password    func() [sha256.Size]byte
	attempts    *sluice.Limiter
	idleTime    time.Duration
	commandTime time.Duration
	log         *slog.Logger
	limits      limits
	ids         atomic.Int64
	counted     func(Counts)

	ctx      context.Context // of decisions
	cut      context.CancelFunc
	draining atomic.Bool
	running  sync.WaitGroup // connections

	attempting sync.Mutex // held from the charge of an attempt to its refund

	mu        sync.Mutex     // guards the fields below
	conns     map[*conn]bool // true if reads may be interrupted
	listeners []net.Listener
}

// New returns a server that decides with the limiter.
func New(l *sluice.Limiter, c Config) (*Server, error) {
	rule, err := sluice.NewRule(sluice.Rule{Name: RuleName, Limit: sluice.PerSecond(1), OnFailure: c.OnFailure})
	if err != nil {
		return nil, err
	}
	s := &Server{
		limiter: l, rule: rule, password: c.Password, attempts: c.Attempts, counted: c.Counted, log: c.Log,
		idleTime: cmp.Or(c.IdleTime, DefaultIdleTime), commandTime: cmp.Or(c.CommandTime, DefaultCommandTime),
		limits: limits{of: map[numbers]*limit{}}, conns: map[*conn]bool{},
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	s.remote = private.IsRemote(l)
	s.ctx, s.cut = context.WithCancel(context.Background())
	return s, nil
}

// Serve accepts connections until the listener is closed or Drain is called. It returns net.ErrClosed.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	s.listeners = append(s.listeners, l)
	s.mu.Unlock()
	if s.draining.Load() {
		return net.ErrClosed
	}
	wait := time.Duration(0)
	for {
		accepted, err := l.Accept()
		switch {
		case s.draining.Load() || errors.Is(err, net.ErrClosed):
			if err == nil {
				_ = accepted.Close()
			}
			return net.ErrClosed
		case err != nil: // a temporary error, such as too many open files
			wait = min(max(2*wait, 5*time.Millisecond), time.Second)
			s.log.Error("accepting connections failed", "error", err, "retry_in", wait)
			select {
			case <-time.After(wait):
			case <-s.ctx.Done():
			}
			continue
		}
		wait = 0
		s.start(s.newConn(accepted))
	}
}

// start serves a connection in a new goroutine.
func (s *Server) start(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining.Load() {
		_ = c.Close()
		return
	}
	s.conns[c] = false
	s.running.Go(func() {
		c.serve()
		_ = c.Close()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	})
}

// ready marks a connection whose reads may be interrupted.
func (s *Server) ready(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[c] = true
}

// Drain closes the listeners, executes the commands already received, and closes the connections. If ctx is done before all
// connections are, it closes the rest and returns the error of ctx.
func (s *Server) Drain(ctx context.Context) error {
	s.mu.Lock()
	s.draining.Store(true)
	for _, l := range s.listeners {
		_ = l.Close()
	}
	for c, ready := range s.conns {
		if ready {
			_ = c.SetReadDeadline(time.Unix(1, 0)) // interrupts pending reads
		}
	}
	s.mu.Unlock()
	done := make(chan struct{})
	go func() {
		s.running.Wait()
		close(done)
	}()
	defer s.cut()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	s.cut()
	s.mu.Lock()
	cut := len(s.conns)
	for c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	<-done
	if cut == 0 {
		return nil
	}
	return ctx.Err()
}
