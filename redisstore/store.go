// Package redisstore keeps a limiter's counts in Redis or Valkey, shared by any number of processes.
//
//	store, err := redisstore.Open(redisstore.Config{URL: "redis://localhost:6379"})
//	limiter, err := sluice.New(store, "api", sluice.PerMinute(100))
//
// A decision, over however many limits, is one round trip: a script decides all takes of a call and charges all or none
// of them. The time is the server's, so processes need not agree on it.
//
// # Keys
//
// A bucket is one key, which has a time to live and is gone soon after its state has worn off: within a second, or
// within half a minute if it was used more than once. It takes 88 bytes of Redis' memory (by MEMORY USAGE, with a key
// of twelve characters) for token buckets, leaky buckets and fixed windows, 136 for sliding counters and for rates that
// need a long fraction. While reservations are out that will be settled, a bucket also keeps up to 32 marks of when they
// were made: 136 bytes with one of them, 856 with all. A sliding log is a sorted set. Keys begin with Config.KeyPrefix, so that a server can be shared
// and its ACL can be narrow; a key that is long or has odd bytes is stored as a digest.
//
// # Least privilege
//
// A user with these rights can do all that the store does:
//
//	ACL SETUSER limiter on >secret ~sluice:* +evalsha +script|load +time +info +mget +set +incrby +del +pexpire
//	    +zadd +zcard +zcount +zrange +zrangebyscore +zrank +zrem +zremrangebyrank +zremrangebyscore
//
// Without info all is decided as before, but a server that takes over is told nothing.
//
// In a Cluster it needs eval as well, because each node has scripts of its own and is sent the text when it lacks it, and
// cluster|slots (cluster|shards from Redis 8 on); with Sentinel it needs role. [Store.List] needs scan and pttl,
// [Store.ResetRules] scan, and both in a Cluster role.
//
// # Clients
//
// Config.URL has the store make its own client, which suits it best. Config.Client is a rueidis client of yours, and
// Config.Commander one of another library: package goredis makes it of a go-redis client. TLS is asked for by rediss://,
// and then the server's certificate is verified; Config.TLS names other authorities, a name or a client's certificate.
//
// # Cluster and Sentinel
//
// In a Cluster a script sees the keys of one slot. Keys of one Take.HashTag share one, and so do all rules' counts of one
// key; a call over several slots asks them at the same time, and gives back what was charged if one of them denies. For
// a moment too much may then be counted, never too little.
//
// After a failover the client finds the new primary by itself. Writes that the old one had not passed on are not lost with
// it: the store remembers what it last saw of up to 65,536 keys, and the first call for one of them that may reach
// another server takes that along. The script goes on from the later of both, at most from a limit that is spent.
// [Store.FailoverRestores] counts where that made a difference. It is the same for a server that restarts empty. What may be
// admitted too much is what was in flight, and what other processes were admitted since the one that first asks the new
// primary for the key was last answered: of a key that all of several processes use, about one for each of the others.
//
// The server that gave a state is never told it again, so that a reset or what was given back there stays so. Another
// server may be told of a time before that by a process that has not asked for the key since. Sliding logs, blocks and the
// IDs of requests are not taken along: a log may admit its count once more for each failover. Nor are the marks of
// reservations: those of a key that was told of stay charged what was reserved, unless they need more.
//
// A store that was given a Client does not see it connect. It takes a failed call for a sign that another server may
// answer, and asks once a second.
//
// # Failures
//
// What the server cannot answer is an error that wraps [sluice.ErrUnavailable] and says what to do about it, and a
// limiter's fail modes act on it. So it is from the start: [Open] does not need the server. What somebody has to mend, a
// password or a certificate, wraps [ErrConfig] as well.
//
// A call is sent again if it provably was not run, by a replica, say, or for lack of a connection: once, within the
// caller's time, and not more than one in ten. What may have been run never is. Lost connections are made anew five times a
// second at most, after a first few.
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

// Config is how a store is made. Set URL, Client or Commander.
type Config struct {
	// URL is the server's: redis://user:password@host:6379/0, rediss:// with TLS, or unix:///path/to.sock?db=0. For a
	// Cluster, name further nodes: redis://a:6379?addr=b:6379&addr=c:6379. For Sentinel, name the sentinels and what they
	// watch: redis://a:26379?addr=b:26379&master_set=NAME.
	URL string
	// TLS is for a URL that begins with rediss://: the authorities that are trusted, a client's certificate, a server's
	// name. Default: the system's authorities, and the name in the URL.
	TLS *tls.Config
	// PasswordFile is a file with the password, instead of one in the URL. It is read whenever a connection is made.
	PasswordFile string
	// Client is the caller's own rueidis client, instead of URL. Close leaves it open. It sends what writes once, whatever
	// its DisableRetry says.
	Client rueidis.Client
	// Commander is the caller's own client of another library, instead of URL: see package goredis. Close leaves it open.
	Commander Commander
	// KeyPrefix is what all keys begin with. Default "sluice:".
	KeyPrefix string
	// Now replaces the server's clock. It is for tests: it may run backwards, and keys are kept for an hour longer
	// because the server's own clock, by which it expires them, goes on.
	Now func() time.Time
}

// Store implements [sluice.Store] on Redis. It is safe for concurrent use.
type Store struct {
	link      atomic.Pointer[link] // nil until the store is connected
	connector connector
	retries   retries

	names    namer // whether with hash tags is known once there is a link
	now      func() time.Time
	wall     func() time.Time // this process' clock, near enough to the server's to say which calendar windows are meant
	extraTTL int64            // how much longer than their states keys are kept, in milliseconds
	nonce    atomic.Uint64
	nodes    atomic.Int64 // that share the store; 0: not known
	members  members
	every    time.Duration // between heartbeats

	batcher     batcher
	unavailable atomic.Bool // the last call found the server not available
	hints       failoverHints

	registry group.Registry                 // what the shapes of states mean
	recorded atomic.Pointer[group.Registry] // what of it the server is known to know
	records  records

	loading chan struct{} // held while the script is loaded
	loads   atomic.Int64  // how often it was
}

var (
	_ sluice.Store      = (*Store)(nil)
	_ sluice.StoreAdmin = (*Store)(nil)
	_ sluice.Arrivals   = (*Store)(nil)
)

const (
	// extraTTLMillis is how much longer than its state a key is kept, in milliseconds: a clock that jumps ahead and is set
	// back within this finds all it had.
	extraTTLMillis = 1000
	// virtualClockTTLMillis is the same for a clock that is not the server's.
	virtualClockTTLMillis = 3600 * 1000
	// mostTakes bounds a call: the script runs alone on its server.
	mostTakes = 10_000
)

// Open returns a store, connected if the server answers. If it does not, the store connects when it can, from the first
// call on, and until then calls fail at once with an error that wraps [sluice.ErrUnavailable]: a service that starts while
// its server is away answers by its rules' fail modes. [Store.Ping] tells. An error of Open wraps [ErrConfig] and needs
// somebody's hand.
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
		return nil, fmt.Errorf("redisstore: %w: Config: set one of URL, Client and Commander, not several", ErrConfig)
	case set == 0:
		return nil, fmt.Errorf(`redisstore: %w: Config: URL is empty: write the server's, such as "redis://localhost:6379"`, ErrConfig)
	case c.URL == "" && (c.TLS != nil || c.PasswordFile != ""):
		return nil, fmt.Errorf("redisstore: %w: Config: TLS and PasswordFile go with URL: a client of your own has its own", ErrConfig)
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
