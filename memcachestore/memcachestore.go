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

// Config is how a store is made. The zero Config works with a Memcached on localhost.
type Config struct {
	// Addrs are the servers: host, host:port, or the path of a unix socket, which begins with a slash. Default
	// 127.0.0.1:11211. All processes must name the same servers, spelled the same, in any order, because that decides which
	// server has a key.
	Addrs []string
	// TLS is for connections by TLS; nil is none. A ServerName that is not set is taken from the address.
	TLS *tls.Config
	// KeyPrefix begins every stored key. Default "sluice:". It has at most 200 printable ASCII characters and no spaces.
	// Give programs that share a Memcached and must not share limits different ones.
	KeyPrefix string
	// Timeout bounds a call whose context does not end earlier, waiting behind others included. Default 1 s.
	Timeout time.Duration
	// Now replaces the clock in tests. It may run backwards, and keys stay at the server an hour longer.
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

// Stats are counts since the store was opened.
type Stats struct {
	// CASConflicts is how often another process changed a key between its read and its write here, so that it was read
	// again. Much more than the number of calls means that a key is too hot for compare-and-swap.
	CASConflicts int64
	// Refunds is how many takes were charged and then refunded, because another of the same call was denied.
	Refunds int64
	// RoundTrips is the number of round trips to servers: two for an admitted take, one for a denied one or a peek, and two
	// more for the first under each limit.
	RoundTrips int64
}

var (
	_ sluice.Store      = (*Store)(nil)
	_ sluice.StoreAdmin = (*Store)(nil)
	_ sluice.Arrivals   = (*Store)(nil)
)

// Open returns a store. It does not connect: use [Store.Connect] before the first decision, which has little time for it,
// and [Store.Ping] to check the servers.
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

// resolve returns how to dial an address, with the default port if it has none.
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

// Close ends the connections and waits for calls in progress, which fail. It is safe to call twice.
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

// pick returns the index of the server with the highest score for a hash. When a server is added or removed, only its own
// share of the keys moves.
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

// mix is the finalizer of splitmix64: every bit of the input changes about half of the output's.
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

// Ping reports whether all servers can be reached and speak the protocol that the store needs.
func (s *Store) Ping(ctx context.Context) error { return s.kit.Ping(ctx) }

// Connect makes some connections to all servers, so that the first decisions need not wait for them.
func (s *Store) Connect(ctx context.Context) error {
	return s.kit.eachShard(ctx, "connect", func(ctx context.Context, i int) error {
		return s.servers[i].warm(ctx, s.kit.unusedKey())
	})
}

// Apply applies the takes; see [sluice.Store]. Takes on one key of one rule are applied together. Of others it can be
// seen in passing that some are charged and some not yet.
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

// Reset forgets the usage of a bucket and lifts a block. It also does so if the stored state cannot be read.
func (s *Store) Reset(ctx context.Context, b sluice.Bucket) error { return s.kit.Reset(ctx, b) }

// Block denies a bucket's takes for d; 0 lifts the block.
func (s *Store) Block(ctx context.Context, b sluice.Bucket, d time.Duration) error {
	return s.kit.Block(ctx, b, d)
}

// Blocked returns how much longer a block of the bucket lasts, 0 if there is none.
func (s *Store) Blocked(ctx context.Context, b sluice.Bucket) (left time.Duration, err error) {
	return s.kit.Blocked(ctx, b)
}
