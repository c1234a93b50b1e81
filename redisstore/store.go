// Package redisstore stores a limiter's state in Redis or Valkey, shared by any number of processes.
//
//	store, err := redisstore.Open(redisstore.Config{URL: "redis://localhost:6379"})
//	limiter, err := sluice.New(store, "api", sluice.PerMinute(100))
//
// A decision over any number of limits is one round trip: a script decides all takes of a call and charges all or none
// of them. It uses the server's clock, so the clocks of the processes need not agree.
//
// # Keys
//
// A bucket is one key with a TTL. It is removed soon after its state expires: within 1 s, or within 30 s if it was used
// more than once. Memory per bucket, by MEMORY USAGE and with a key of 12 characters:
//
//   - 88 bytes for token buckets, leaky buckets and fixed windows
//   - 136 bytes for sliding counters, and for rates that need a long fraction
//   - 136 to 856 bytes for a bucket with open reservations, which has 1 to 32 marks of when they were made
//
// A sliding log is a sorted set. All keys start with Config.KeyPrefix, so that a server can be shared and its ACL can
// be narrow. A key that is long or contains unusual bytes is stored as a digest.
//
// # Least privilege
//
// A user with these permissions can do everything that the store needs:
//
//	ACL SETUSER limiter on >secret ~sluice:* +evalsha +script|load +time +info +mget +set +incrby +del +pexpire
//	    +zadd +zcard +zcount +zrange +zrangebyscore +zrank +zrem +zremrangebyrank +zremrangebyscore
//
// Without info decisions are the same, but failover hints are disabled.
//
// In a Cluster the user also needs eval, because each node has its own scripts and receives the script's text when it
// lacks it, and cluster|slots (cluster|shards from Redis 8 on). With Sentinel it needs role. [Store.List] needs scan
// and pttl, [Store.ResetRules] needs scan, and both need role in a Cluster.
//
// # Clients
//
// With Config.URL the store makes its own client, which is the fastest choice. Config.Client is an existing rueidis
// client, and Config.Commander a client of another library; package goredis implements it for go-redis. A rediss:// URL
// enables TLS with verification of the server's certificate; Config.TLS sets other CAs, a server name or a client
// certificate.
//
// # Cluster and Sentinel
//
// In a Cluster a script can access the keys of one hash slot only. Keys with the same Take.HashTag share a slot, and so
// do the buckets of all rules for one key. A call over several slots sends one script per slot concurrently, and
// refunds the charges if one of them denies. For a moment usage may thus be too high, never too low.
//
// After a failover the client finds the new primary by itself. Writes that the old primary had not replicated are
// restored by failover hints: the store remembers the last state of up to 65,536 keys, and sends it with the first call
// for such a key that may reach another server. The script continues from the later of both states, at most from an
// exhausted limit. [Store.FailoverRestores] counts the hints that changed a state. A server that restarts empty is
// handled in the same way. The excess is bounded by the calls in flight, plus the calls that other instances were
// allowed after the last reply to the instance that first calls the new primary for the key. For a key that several
// instances use, that is about one call for each of the others.
//
// A hint is never applied on the server that it came from, so that resets and refunds there remain in effect. Another
// server may receive a hint from before a reset, from an instance that has not used the key since. Sliding logs, blocks
// and idempotency IDs are not part of hints: a log may admit its count once more per failover. Neither are the marks of
// reservations: a reservation of a restored key stays charged at the reserved cost, unless its actual cost is higher.
//
// A store with Config.Client or Config.Commander cannot observe connections. It treats a failed call as a sign that
// another server may reply, and checks the server's run ID once per second.
//
// # Failures
//
// If the server cannot be reached in time, calls return an error that wraps [sluice.ErrUnavailable] and contains
// advice, and a limiter's fail modes apply. This is so from the start: [Open] does not need a running server. Errors
// that an operator must fix, such as a wrong password or certificate, wrap [ErrConfig] as well.
//
// A call is resent only if it certainly did not run, for example because a replica rejected it or there was no
// connection: once, within the caller's deadline, and for at most 10 % of the calls. A call that may have run is never
// resent. Lost connections are re-established at most 5 times per second, after an initial burst.
package redisstore

import (
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/private"
)

// Config configures a store. Exactly one of URL, Client and Commander must be set.
type Config struct {
	// URL is the server's URL: redis://user:password@host:6379/0, rediss://… with TLS, or unix:///path/to.sock?db=0.
	// For a Cluster, add further nodes: redis://a:6379?addr=b:6379&addr=c:6379. For Sentinel, list the sentinels and
	// name the master: redis://a:26379?addr=b:26379&master_set=NAME.
	URL string
	// TLS is the TLS configuration for a rediss:// URL: trusted CAs, client certificates, the server name. Nil means
	// the system's CAs and the host name of the URL.
	TLS *tls.Config
	// PasswordFile is a file that contains the password, instead of the URL. It is read for every new connection.
	PasswordFile string
	// Client is an existing rueidis client, instead of URL. Close does not close it. Commands that write are sent only
	// once, regardless of the client's DisableRetry.
	Client rueidis.Client
	// Commander is an existing client of another library, instead of URL; see package goredis. Close does not close it.
	Commander Commander
	// KeyPrefix is the prefix of all keys. Empty means "sluice:".
	KeyPrefix string
	// Now replaces the server's clock, for tests. It may run backwards. Keys are kept for an hour longer, because the
	// server expires them by its own clock.
	Now func() time.Time
}

// Store implements [sluice.Store] on Redis. It is safe for concurrent use.
type Store struct {
	link      atomic.Pointer[link] // nil until the store is connected
	connector connector
	retries   retries

	names    namer // whether it uses hash tags is known once there is a link
	now      func() time.Time
	wall     func() time.Time // local clock, close enough to the server's to select calendar windows
	extraTTL int64            // added to the TTL of keys, in milliseconds
	nonce    atomic.Uint64
	nodes    atomic.Int64 // number of instances; 0: unknown
	members  members
	every    time.Duration // interval of heartbeats

	batcher     batcher
	unavailable atomic.Bool // the last call failed with ErrUnavailable
	hints       failoverHints

	registry group.Registry                 // limit parameters by shape
	recorded atomic.Pointer[group.Registry] // those of registry that the server is known to have
	records  records

	loading chan struct{} // held while the script is loaded
	loads   atomic.Int64  // number of times that it was loaded
}

var (
	_ sluice.Store      = (*Store)(nil)
	_ sluice.StoreAdmin = (*Store)(nil)
	_ sluice.Arrivals   = (*Store)(nil)
)

const (
	// extraTTLMillis is added to the TTL of a key, in milliseconds. A clock that jumps ahead by less and is set back
	// finds all state.
	extraTTLMillis = 1000
	// virtualClockTTLMillis is the same for a clock that is not the server's.
	virtualClockTTLMillis = 3600 * 1000
	// maxTakes is the maximum number of takes in a call, because the server does nothing else while the script runs.
	maxTakes = 10_000
)

// Open returns a store, connected if the server replies. Otherwise the store connects in the background from the first
// call on. Until then calls fail immediately with an error that wraps [sluice.ErrUnavailable], so that a service that
// starts during an outage of the server applies its rules' fail modes. Use [Store.Ping] to find out whether the server
// is available. An error of Open wraps [ErrConfig] and requires a change of the configuration.
func Open(c Config) (*Store, error) {
	s := &Store{
		names: namer{prefix: c.KeyPrefix}, now: c.Now, wall: time.Now, extraTTL: extraTTLMillis, every: heartbeatInterval,
		loading: make(chan struct{}, 1), members: newMembers(),
	}
	s.batcher.run = s.runWithDeadline
	s.recorded.Store(new(group.Registry))
	s.hints.moved = func() { s.recorded.Store(new(group.Registry)) }
	if c.KeyPrefix == "" {
		s.names.prefix = "sluice:"
	}
	if c.Now != nil {
		s.extraTTL = virtualClockTTLMillis
	}
	s.nonce.Store(rand.Uint64())
	set := 0
	for _, given := range []bool{c.URL != "", c.Client != nil, c.Commander != nil} {
		if given {
			set++
		}
	}
	switch {
	case set > 1:
		return nil, fmt.Errorf("redisstore: %w: Config: set only one of URL, Client and Commander", ErrConfig)
	case set == 0:
		return nil, fmt.Errorf(`redisstore: %w: Config: URL is empty: set it to the server's URL, such as "redis://localhost:6379"`, ErrConfig)
	case c.URL == "" && (c.TLS != nil || c.PasswordFile != ""):
		return nil, fmt.Errorf("redisstore: %w: Config: TLS and PasswordFile require URL: configure Client or Commander itself", ErrConfig)
	case c.Client != nil:
		s.use(&link{client: direct{c.Client}})
	case c.Commander != nil:
		s.use(&link{client: c.Commander})
	default:
		if err := s.connect(&c); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func init() {
	private.RegisterEngine(func(store any) private.Engine {
		if s, ok := store.(*Store); ok {
			return engine{s}
		}
		return nil
	})
}
