package memcachestore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/arrival"
	"github.com/sluiceproject/sluice/internal/goroutines"
	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/private"
	"github.com/sluiceproject/sluice/internal/step"
	"github.com/sluiceproject/sluice/internal/storekit"
)

// Config is how a store is made. The zero Config works with a Memcached on this machine.
type Config struct {
	// Addrs are the servers: host, host:port, or the path of a unix socket, which begins with a slash. Default
	// 127.0.0.1:11211. All processes must name the same servers, spelled the same, in any order: that decides where a
	// key is kept.
	Addrs []string
	// TLS is for connections by TLS; nil is none. A ServerName that is not set is taken from the address.
	TLS *tls.Config
	// KeyPrefix begins every stored key. Default "sluice:". It has at most 200 printable ASCII characters and no spaces.
	// Give programs that share a Memcached and must not share limits different ones.
	KeyPrefix string
	// Timeout bounds a call whose context does not end earlier, waiting behind others included. Default 1 s.
	Timeout time.Duration
	// Now replaces the clock. It is for tests: it may run backwards, and keys then stay at the server an hour longer.
	Now func() time.Time
}

const (
	defaultAddr    = "127.0.0.1:11211"
	defaultPort    = "11211"
	defaultPrefix  = "sluice:"
	defaultTimeout = time.Second
	maxPrefix      = 200
)

// Store implements [sluice.Store] on Memcached. It is safe for concurrent use.
type Store struct {
	servers   []*server
	rules     []group.Registry // of each server
	keyPrefix string
	timeout   time.Duration
	now       func() time.Time
	clock     clock
	keyLocks  keyLocks
	helpers   goroutines.Group
	stats     counters
}

type counters struct{ casConflicts, refunds, trips atomic.Int64 }

// Stats are counts since the store was opened.
type Stats struct {
	// CASConflicts is how often another process changed a key between being read and written here, so that it was read
	// again. Much more than the number of calls means that a key is too hot for compare-and-swap.
	CASConflicts int64
	// Refunds is how many takes were charged and then refunded, because another of the same call was denied.
	Refunds int64
	// RoundTrips is how often a server was asked: two for an admitted take, one for a denied one or a peek, and two more for
	// the first under each limit.
	RoundTrips int64
}

var (
	_ sluice.Store      = (*Store)(nil)
	_ sluice.StoreAdmin = (*Store)(nil)
	_ sluice.Arrivals   = (*Store)(nil)
)

// Open returns a store. It does not connect: use [Store.Connect] before the first decision, which has little time for it,
// and [Store.Ping] to learn whether the servers answer.
func Open(c Config) (*Store, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	s := &Store{keyPrefix: c.KeyPrefix, timeout: c.Timeout, now: c.Now}
	for _, a := range c.Addrs {
		network, addr, host := resolve(a)
		v := &server{
			network: network, addr: addr, seed: seedOf(addr),
			slots: make(chan struct{}, maxConns), ended: make(chan struct{}), open: map[*conn]bool{},
		}
		if c.TLS != nil {
			v.tls = c.TLS.Clone()
			if v.tls.ServerName == "" {
				v.tls.ServerName = host
			}
		}
		s.servers = append(s.servers, v)
	}
	s.rules = make([]group.Registry, len(s.servers))
	return s, nil
}

func (c Config) withDefaults() Config {
	if len(c.Addrs) == 0 {
		c.Addrs = []string{defaultAddr}
	}
	if c.KeyPrefix == "" {
		c.KeyPrefix = defaultPrefix
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	return c
}

func (c Config) validate() error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("memcachestore: "+format, args...))
	}
	seen := map[string]bool{}
	for _, a := range c.Addrs {
		_, addr, host := resolve(a)
		if host == "" && !strings.HasPrefix(addr, "/") {
			fault("Addrs: %q names no host: use host:port, or the path of a unix socket", a)
		}
		if seen[addr] {
			fault("Addrs: %q is there twice", a)
		}
		seen[addr] = true
	}
	if len(c.KeyPrefix) > maxPrefix {
		fault("KeyPrefix has %d bytes, at most %d are allowed", len(c.KeyPrefix), maxPrefix)
	}
	if strings.ContainsFunc(c.KeyPrefix, func(r rune) bool { return r <= ' ' || r > '~' }) {
		fault("KeyPrefix %.40q: use printable ASCII characters and no spaces", c.KeyPrefix)
	}
	if c.Timeout < 0 {
		fault("Timeout is %v: use a positive duration, or 0 for %v", c.Timeout, defaultTimeout)
	}
	return errors.Join(faults...)
}

// resolve says how an address is dialled, with the default port if it has none.
func resolve(a string) (network, addr, host string) {
	if strings.HasPrefix(a, "/") {
		return "unix", a, ""
	}
	host, _, err := net.SplitHostPort(a)
	if err != nil {
		host = strings.Trim(a, "[]")
		a = net.JoinHostPort(host, defaultPort)
	}
	return "tcp", a, host
}

// Close ends the connections and waits for calls on their way, which fail. It is safe to call twice.
func (s *Store) Close() error {
	for _, v := range s.servers {
		v.close()
	}
	s.helpers.Close()
	return nil
}

// Shards is how many servers there are, each of which can fail by itself.
func (s *Store) Shards() int { return len(s.servers) }

// Shard is the number of the server that keeps a take's key.
func (s *Store) Shard(t *sluice.Take) int { return s.shard(private.RuleOf(t.Rule).ID, t.Key) }

func (s *Store) shard(rule group.RuleID, key string) int {
	if len(s.servers) == 1 {
		return 0
	}
	return slices.Index(s.servers, s.pick(itemDigest(rule, key)))
}

// Patience is how long a server may still take to reply; see [sluice.Arrivals].
func (s *Store) Patience(budget time.Duration) (left time.Duration, own bool) {
	connected := false
	left, own = arrival.Patience(budget, func(yield func(*arrival.Waits) bool) {
		for _, v := range s.servers {
			v.mu.Lock()
			defer v.mu.Unlock()
			for c := range v.open {
				connected = true
				if !yield(c.waits) {
					return
				}
			}
		}
	})
	if !connected {
		return 0, false
	}
	return left, own
}

// Stats tells how the store is doing.
func (s *Store) Stats() Stats {
	return Stats{s.stats.casConflicts.Load(), s.stats.refunds.Load(), s.stats.trips.Load()}
}

// Ping asks all servers whether they are there and speak the protocol that the store needs.
func (s *Store) Ping(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var faults []error
	for _, v := range s.servers {
		faults = append(faults, s.exchange(bounded, v, s.nothing(), make([]reply, 1)))
	}
	return failure(ctx, "ping", errors.Join(faults...))
}

// Connect makes some connections to all servers, so that the first decisions need not wait for them.
func (s *Store) Connect(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var faults []error
	for _, v := range s.servers {
		faults = append(faults, v.warm(bounded, s.nothing()))
	}
	return failure(ctx, "connect", errors.Join(faults...))
}

// nothing asks for a key that is not there.
func (s *Store) nothing() []command { return []command{{verb: get, key: s.name(digest{})}} }

// Apply applies the takes; see [sluice.Store]. Takes on one key of one rule are applied together. Of others it can be
// seen in passing that some are charged and some not yet.
func (s *Store) Apply(ctx context.Context, takes []sluice.Take, out []sluice.Decision) error {
	return storekit.Apply(ctx, "memcachestore", engine{s}, takes, out)
}

func init() {
	private.RegisterEngine(func(store any) private.Engine {
		if s, ok := store.(*Store); ok {
			return engine{s}
		}
		return nil
	})
}

// engine is how a limiter asks the store.
type engine struct{ *Store }

// ApplyOps is Apply, in integers.
func (s engine) ApplyOps(ctx context.Context, ops []group.Op, out []group.Answer) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.apply(ctx, slices.Clone(ops), out) // a caller that gives up may leave the call to others
}

// ShardOf is Shard, of an op.
func (s engine) ShardOf(op *group.Op) int { return s.shard(op.Rule, op.Key) }

// apply applies ops, which it keeps.
func (s *Store) apply(ctx context.Context, ops []group.Op, out []group.Answer) error {
	if len(ops) == 0 {
		return nil
	}
	c := s.newCall(ops)
	if err := c.tell(ctx); err != nil {
		return err
	}
	run := s.applyMultiKey
	if len(c.units) == 1 {
		run = s.applyOneKey
	}
	if err := run(ctx, c); err != nil {
		return err
	}
	for i := range ops {
		out[i] = group.AnswerOf(ops[i].Params, &c.group.Out[i])
	}
	return nil
}

// Reset forgets what was spent of a bucket, and lifts a block. It also does so if what is stored cannot be read.
func (s *Store) Reset(ctx context.Context, b sluice.Bucket) error {
	return s.change(ctx, "reset", b, replace, func(it *item, _ int64) { it.reset(private.ParamsOf(b.EffectiveLimit())) })
}

// Block denies a bucket's takes for d; 0 lifts the block.
func (s *Store) Block(ctx context.Context, b sluice.Bucket, d time.Duration) error {
	return s.change(ctx, "block", b, fail, func(it *item, now int64) {
		it.blocked = 0
		if d > 0 {
			it.blocked = min(now+d.Microseconds(), step.MaxTime)
		}
	})
}

// Blocked returns how much longer a block of the bucket lasts, 0 if there is none.
func (s *Store) Blocked(ctx context.Context, b sluice.Bucket) (left time.Duration, err error) {
	err = s.onBucket(ctx, "blocked", b, func(ctx context.Context, u *unit) error {
		if err := s.read(ctx, []*unit{u}); err != nil {
			return err
		}
		left = time.Duration(max(0, u.item.blocked-s.micros())) * time.Microsecond
		return nil
	})
	return left, err
}

func (s *Store) change(ctx context.Context, what string, b sluice.Bucket, bad unreadable, f changer) error {
	return s.onBucket(ctx, what, b, func(ctx context.Context, u *unit) error { return s.update(ctx, u, bad, f) })
}

// onBucket runs f when it is the bucket's turn.
func (s *Store) onBucket(ctx context.Context, what string, b sluice.Bucket, f func(ctx context.Context, u *unit) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := private.CheckBucket(&b); err != nil {
		return fmt.Errorf("memcachestore: %s: %w", what, err)
	}
	u := s.unit(private.RuleOf(b.Rule).ID, b.Key)
	return s.applyKey(ctx, what, []*unit{u}, func(ctx context.Context) error { return f(ctx, u) })
}

// applyMultiKey runs a call about several items.
func (s *Store) applyMultiKey(ctx context.Context, c *call) error {
	return s.applyKey(ctx, "take", c.units, c.run)
}

// applyKey runs f when it is the call's turn on all its keys.
func (s *Store) applyKey(ctx context.Context, what string, units []*unit, f func(ctx context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	keys := make([]digest, len(units))
	for i, u := range units {
		keys[i] = u.digest
	}
	if err := s.keyLocks.wait(bounded, keys); err != nil {
		return failure(ctx, what, err)
	}
	defer s.keyLocks.leave(keys)
	return failure(ctx, what, f(bounded))
}

// failure says what an error means to the caller: a caller who gave up is told so, everything else is that the store
// is not available. Nothing that goes wrong is ever taken for an answer.
func failure(ctx context.Context, what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sluice.ErrClosed):
		return fmt.Errorf("memcachestore: %s: %w", what, sluice.ErrClosed)
	case errors.Is(ctx.Err(), context.Canceled):
		return fmt.Errorf("memcachestore: %s: %w: %v", what, ctx.Err(), err)
	case ctx.Err() != nil:
		return fmt.Errorf("memcachestore: %s: %w: %w: %v", what, sluice.ErrUnavailable, ctx.Err(), err)
	}
	return fmt.Errorf("memcachestore: %s: %w: %w", what, sluice.ErrUnavailable, err)
}

// exchange asks a server.
func (s *Store) exchange(ctx context.Context, v *server, commands []command, replies []reply) error {
	if len(commands) == 0 {
		return nil
	}
	s.stats.trips.Add(1)
	return v.exchange(ctx, commands, replies)
}
