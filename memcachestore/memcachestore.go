package memcachestore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/arrival"
	"github.com/sluiceproject/sluice/internal/private"
)

// Config configures a store. The zero Config uses a Memcached on localhost.
type Config struct {
	// Addrs lists the servers: host, host:port, or the path of a Unix socket, which starts with a slash. Empty means
	// 127.0.0.1:11211. All processes must list the same servers with the same spelling, in any order, because the
	// addresses determine which server has a key.
	Addrs []string
	// TLS is the TLS configuration of connections; nil means no TLS. An empty ServerName is taken from the address.
	TLS *tls.Config
	// KeyPrefix is the prefix of every stored key: at most 200 printable ASCII characters without spaces. Empty means
	// "sluice:". Programs that share a Memcached but not their limits need different prefixes.
	KeyPrefix string
	// Timeout is the timeout of a call whose context does not end earlier, including the wait for other callers. 0
	// means 1 s.
	Timeout time.Duration
	// Now replaces the clock, for tests. It may run backwards. Keys stay at the server for an hour longer.
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
	kit     *kit
	servers []*server // the shards
}

// Stats contains counts since the store was opened.
type Stats struct {
	// CASConflicts is how often another process changed a key between its read and its write, so that it was read
	// again. Much more than the number of calls means that a key is too hot for compare-and-swap.
	CASConflicts int64
	// Refunds is the number of takes that were charged and then refunded, because another take of the same call was
	// denied.
	Refunds int64
	// RoundTrips is the number of round trips to servers: two for an allowed take, one for a denied take or a peek, and
	// two more for the first take under each limit.
	RoundTrips int64
}

var (
	_ sluice.Store      = (*Store)(nil)
	_ sluice.StoreAdmin = (*Store)(nil)
	_ sluice.Arrivals   = (*Store)(nil)
)

// Open returns a store. It does not connect: call [Store.Connect] before the first decision, whose timeout is too short
// for it, and [Store.Ping] to check the servers.
func Open(c Config) (*Store, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	servers := make([]*server, len(c.Addrs))
	for i, a := range c.Addrs {
		servers[i] = newServer(a, c.TLS)
	}
	return newStore(c, servers), nil
}

func newStore(c Config, servers []*server) *Store {
	shards := make([]backend, len(servers))
	for i, v := range servers {
		shards[i] = v
	}
	s := &Store{servers: servers}
	s.kit = newKit(kitConfig{pkg: "memcachestore", keyPrefix: c.KeyPrefix, timeout: c.Timeout, now: c.Now, pick: s.pick}, shards)
	return s
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
			fault("Addrs: %q has no host: use host:port, or the path of a Unix socket", a)
		}
		if seen[addr] {
			fault("Addrs: %q is listed twice", a)
		}
		seen[addr] = true
	}
	if len(c.KeyPrefix) > maxPrefix {
		fault("KeyPrefix has %d bytes, maximum %d", len(c.KeyPrefix), maxPrefix)
	}
	if strings.ContainsFunc(c.KeyPrefix, func(r rune) bool { return r <= ' ' || r > '~' }) {
		fault("KeyPrefix %.40q: use printable ASCII characters and no spaces", c.KeyPrefix)
	}
	if c.Timeout < 0 {
		fault("Timeout is %v: use a positive duration, or 0 for %v", c.Timeout, defaultTimeout)
	}
	return errors.Join(faults...)
}

// resolve returns the network and address to dial, with the default port if it has none, and the host for TLS.
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

// Close closes the connections and waits for calls in flight, which fail. It may be called twice.
func (s *Store) Close() error {
	for _, v := range s.servers {
		v.close()
	}
	s.kit.close()
	return nil
}

// Shards returns the number of servers, each of which can fail independently.
func (s *Store) Shards() int { return len(s.servers) }

// Shard returns the index of the server that has a take's key.
func (s *Store) Shard(t *sluice.Take) int { return s.kit.shardOf(private.RuleOf(t.Rule).ID, t.Key) }

// pick returns the index of the server with the highest score for a hash (rendezvous hashing). When a server is added
// or removed, only its own share of the keys moves.
func (s *Store) pick(hash uint64) int {
	var best int
	var highest uint64
	for i, v := range s.servers {
		if score := mix(hash ^ v.seed); score >= highest {
			best, highest = i, score
		}
	}
	return best
}

// mix is the finalizer of splitmix64: every bit of the input changes about half of the output bits.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// Patience returns how long a server may still take to reply; see [sluice.Arrivals].
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

// Stats returns counts since the store was opened.
func (s *Store) Stats() Stats {
	trips := int64(0)
	for _, v := range s.servers {
		trips += v.trips.Load()
	}
	return Stats{s.kit.casConflicts.Load(), s.kit.refunds.Load(), trips}
}

// Ping returns an error unless all servers reply and support the protocol that the store needs.
func (s *Store) Ping(ctx context.Context) error { return s.kit.Ping(ctx) }

// Connect opens some connections to all servers, so that the first decisions need not wait for them.
func (s *Store) Connect(ctx context.Context) error {
	return s.kit.eachShard(ctx, "connect", func(ctx context.Context, i int) error {
		return s.servers[i].warm(ctx, s.kit.unusedKey())
	})
}

// Apply applies the takes; see [sluice.Store]. Takes on one key of one rule are atomic. Takes on several keys are all
// or nothing, but other processes may see some charged and others not yet.
func (s *Store) Apply(ctx context.Context, takes []sluice.Take, out []sluice.Decision) error {
	return s.kit.Apply(ctx, takes, out)
}

func init() {
	private.RegisterEngine(func(store any) private.Engine {
		if s, ok := store.(*Store); ok {
			return s.kit
		}
		return nil
	})
}

// Reset removes the usage of a bucket and lifts its block, even if the stored state cannot be decoded.
func (s *Store) Reset(ctx context.Context, b sluice.Bucket) error { return s.kit.Reset(ctx, b) }

// Block denies a bucket's takes for d; 0 lifts the block.
func (s *Store) Block(ctx context.Context, b sluice.Bucket, d time.Duration) error {
	return s.kit.Block(ctx, b, d)
}

// Blocked returns the remaining time of the bucket's block, or 0 if it is not blocked.
func (s *Store) Blocked(ctx context.Context, b sluice.Bucket) (left time.Duration, err error) {
	return s.kit.Blocked(ctx, b)
}
