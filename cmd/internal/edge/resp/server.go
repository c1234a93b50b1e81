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

// RuleName is the rule that all limits of CL.THROTTLE are of.
const RuleName = "resp"

// Config is how a [Server] is made. Zero fields have defaults.
type Config struct {
	// Password is the SHA-256 of what clients must show, asked for whenever one does. Nil: nothing is to be shown.
	Password func() [sha256.Size]byte
	// Attempts limits failed attempts to show it, by the peer's address. It has one rule. Nil: any number.
	Attempts *sluice.Limiter
	// OnFailure is what is answered while the store cannot.
	OnFailure sluice.FailMode
	// IdleTime is after how long without a command a connection is closed. Default [DefaultIdleTime].
	IdleTime time.Duration
	// CommandTime is how long a client may take for a command that it has begun, for showing the password, and for reading
	// its answers. Default [DefaultCommandTime].
	CommandTime time.Duration
	// Counted is told what was answered whenever answers are written. It may be called from several goroutines.
	Counted func(Counts)

	Log *slog.Logger // default slog.Default()
}

// Defaults of Config.
const (
	DefaultIdleTime    = 10 * time.Minute
	DefaultCommandTime = 10 * time.Second
)

// Counts are commands by how they were answered.
type Counts struct {
	Allowed, Denied int64 // CL.THROTTLE
	Other           int64 // anything else
	Errors          int64
}

// Server answers Redis clients.
type Server struct {
	limiter     *sluice.Limiter
	rule        *sluice.Rule
	remote      bool // decisions take a while: the store asks servers
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

	attempting sync.Mutex // held from an attempt's charge to its refund

	mu        sync.Mutex     // guards the fields below
	conns     map[*conn]bool // true: may be woken
	listeners []net.Listener
}

// New returns a server that decides by the limiter.
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

// Serve answers until the listener is closed.
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
		case err != nil: // there are too many open files, say, which will pass
			wait = min(max(2*wait, 5*time.Millisecond), time.Second)
			s.log.Error("no connection can be accepted: trying again", "error", err, "in", wait)
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

// start has a connection answered on a goroutine of its own.
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

// ready notes that a connection may be woken.
func (s *Server) ready(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[c] = true
}

// Drain accepts no more, answers what has come, and closes. Who is not done when the context ends is cut off; then it
// returns the context's error.
func (s *Server) Drain(ctx context.Context) error {
	s.mu.Lock()
	s.draining.Store(true)
	for _, l := range s.listeners {
		_ = l.Close()
	}
	for c, ready := range s.conns {
		if ready {
			_ = c.SetReadDeadline(time.Unix(1, 0)) // wakes who waits
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
