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
// need a long fraction. A sliding log is a sorted set. Keys begin with Config.Prefix, so that a server can be shared
// and its ACL can be narrow; a key that is long or has odd bytes is stored as a digest.
//
// # Least privilege
//
// A user with these rights can do all that the store does:
//
//	ACL SETUSER limiter on >secret ~sluice:* +evalsha +script|load +time +info +mget +set +incrby +del +pexpire
//	    +zadd +zcard +zcount +zrange +zrangebyscore +zrank +zrem +zremrangebyrank +zremrangebyscore
//
// Without info all is decided as before, but a server that takes over is told nothing. In a Cluster it needs eval as
// well: each node has scripts of its own, and is sent the text when it lacks it.
//
// # Cluster and Sentinel
//
// In a Cluster a script sees the keys of one slot. Keys of one Take.Slot share one, and so do all rules' counts of one
// key; a call over several slots asks them at the same time, and gives back what was charged if one of them denies. For
// a moment too much may then be counted, never too little. Reset and Block do not reach keys that are counted under a
// Slot.
//
// After a failover the client finds the new primary by itself. Writes that the old one had not passed on are not lost with
// it: the store remembers what it last saw of up to 65,536 keys, and the first call for one of them that may reach
// another server takes that along. The script goes on from the later of both, at most from a limit that is spent.
// [Store.Restored] counts where that made a difference. It is the same for a server that restarts empty. What may be
// admitted too much is what was in flight, and what other processes were admitted since the one that first asks the new
// primary for the key was last answered: of a key that all of several processes use, about one for each of the others.
//
// The server that gave a state is never told it again, so that a reset or what was given back there stays so. Another
// server may be told of a time before that by a process that has not asked for the key since. Sliding logs, blocks and the
// IDs of requests are not taken along: a log may admit its count once more for each failover.
//
// A store that was given a Client does not see it connect. It takes a failed call for a sign that another server may
// answer, and asks once a second.
//
// # Failures
//
// What the server cannot answer is an error that wraps [sluice.ErrUnavailable], and a limiter's fail modes act on it.
// A call is sent again only if it provably was not run.
package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/step"
)

// Config is how a store is made. Set URL or Client.
type Config struct {
	// URL is the server's: redis://user:password@host:6379/0, rediss:// with TLS, or unix:///path/to.sock?db=0. For a
	// Cluster, name further nodes: redis://a:6379?addr=b:6379&addr=c:6379. For Sentinel, name the sentinels and what they
	// watch: redis://a:26379?addr=b:26379&master_set=NAME.
	URL string
	// Client is the caller's own client, instead of URL. Close leaves it open.
	Client rueidis.Client
	// Prefix is what all keys begin with. Default "sluice:".
	Prefix string
	// Now replaces the server's clock. It is for tests: it may run backwards, and keys are kept for an hour longer
	// because the server's own clock, by which it expires them, goes on.
	Now func() time.Time
}

// Store implements [sluice.Store] on Redis. It is safe for concurrent use.
type Store struct {
	client rueidis.Client
	own    bool // the client is ours to close
	names  namer
	now    func() time.Time
	wall   func() time.Time // this process' clock, near enough to the server's to say which calendar windows are meant
	margin int64            // how much longer than their states keys are kept, in milliseconds
	nonce  atomic.Uint64
	nodes  atomic.Int64  // that share the store
	every  time.Duration // between heartbeats

	watched  watched
	together combiner
	troubled atomic.Bool // the last call found the server not available
	hinter   hinter

	loading chan struct{} // held while the script is loaded
	loads   atomic.Int64  // how often it was
}

var (
	_ sluice.Store  = (*Store)(nil)
	_ sluice.Keys   = (*Store)(nil)
	_ sluice.Remote = (*Store)(nil)
)

const (
	// keepLonger is how much longer than its state a key is kept, in milliseconds: a clock that jumps ahead and is set
	// back within this finds all it had.
	keepLonger = 1000
	// keepVirtual is the same for a clock that is not the server's.
	keepVirtual = 3600 * 1000
	// flushDelay is how long the client gathers requests before it writes: much less than a round trip, and enough to
	// write those of many callers at once.
	flushDelay     = 20 * time.Microsecond
	connectTimeout = time.Second
	// silence is how long a server that has something to answer may say nothing before its connection is given up.
	silence = 2 * time.Second
	// mostTakes bounds a call: the script runs alone on its server.
	mostTakes = 10_000
)

// Open connects to the server.
func Open(c Config) (*Store, error) {
	s := &Store{
		client: c.Client, names: namer{prefix: c.Prefix}, now: c.Now, wall: time.Now, margin: keepLonger, every: heartbeatEvery,
		loading: make(chan struct{}, 1),
	}
	s.together.run = s.inTime
	if c.Prefix == "" {
		s.names.prefix = "sluice:"
	}
	if c.Now != nil {
		s.margin = keepVirtual
	}
	s.nonce.Store(rand.Uint64())
	switch {
	case c.Client != nil && c.URL != "":
		return nil, errors.New("redisstore: Config: set URL or Client, not both")
	case c.Client == nil && c.URL == "":
		return nil, errors.New(`redisstore: Config: URL is empty: write the server's, such as "redis://localhost:6379"`)
	case c.Client == nil:
		if err := s.connect(c.URL); err != nil {
			return nil, err
		}
	}
	s.names.tagged = s.client.Mode() == rueidis.ClientModeCluster
	s.together.apart = s.names.tagged
	s.hinter.init(s.names.tagged)
	return s, nil
}

func (s *Store) connect(url string) error {
	option, err := rueidis.ParseURL(url)
	if err != nil {
		// The URL may have a password in it, and so may the error.
		return errors.New("redisstore: Config.URL is not of the form redis://user:password@host:6379/0, " +
			"rediss://… with TLS or unix://…")
	}
	option.DisableCache = true
	option.DisableRetry = true // what may have run is not sent again
	option.MaxFlushDelay = flushDelay
	option.Dialer.Timeout = connectTimeout
	option.ConnWriteTimeout = silence
	option.DialCtxFn = s.hinter.watch(s.watched.dialer(option.DialCtxFn))
	s.client, err = rueidis.NewClient(option)
	if err != nil {
		return fmt.Errorf("redisstore: open: %w: %w", sluice.ErrUnavailable, err)
	}
	s.own = true
	return nil
}

// Close ends the store's connections. Calls in flight fail.
func (s *Store) Close() {
	if s.own {
		s.client.Close()
	}
}

// Apply applies the takes, all or nothing; see [sluice.Store].
func (s *Store) Apply(ctx context.Context, takes []sluice.Take, out []sluice.Decision) error {
	if len(takes) == 0 {
		return ctx.Err()
	}
	if s.names.tagged && len(takes) > 1 {
		if groups := s.apart(takes); len(groups) > 1 {
			return s.applyApart(ctx, groups, out)
		}
	}
	return s.applyTogether(ctx, takes, out)
}

// applyTogether applies takes of one slot.
func (s *Store) applyTogether(ctx context.Context, takes []sluice.Take, out []sluice.Decision) error {
	c, err := newCall(&s.names, takes)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	answers, err := s.together.apply(ctx, c)
	if err != nil {
		return err
	}
	for i := range takes {
		out[i] = sluice.Answered(c.ops[i].Params, &answers[i])
	}
	return nil
}

// apply runs a call and returns the answers to its takes.
func (s *Store) apply(ctx context.Context, c *call) ([]step.Answer, error) {
	if len(c.ops) > mostTakes {
		return nil, fmt.Errorf("redisstore: %w: %d takes in one call, at most %d are allowed",
			sluice.ErrInvalid, len(c.ops), mostTakes)
	}
	c.place()
	wall := s.micro()
	s.hinter.attach(c, wall)
	r, err := s.send(ctx, c, wall)
	if err == nil && r.verdicts == staleVerdict {
		// The server's clock is far from ours, and nothing was changed. Now its time is known.
		if r, err = s.send(ctx, c, r.now); err == nil && r.verdicts == staleVerdict {
			err = fmt.Errorf("redisstore: %w: the server's clock jumped between two calls", sluice.ErrUnavailable)
		}
	}
	if err != nil {
		s.hinter.failed(err)
		return nil, err
	}
	answers := make([]step.Answer, len(c.ops))
	if err := c.replay(r, answers); err != nil {
		return nil, err
	}
	s.hinter.learn(c, r, wall)
	return answers, nil
}

// micro is a time near the script's.
func (s *Store) micro() int64 {
	if s.now != nil {
		return min(max(s.now().UnixMicro(), 1), step.MaxTime-3*step.Horizon/2)
	}
	return s.wall().UnixMicro()
}

// send runs the script and reads what it says.
func (s *Store) send(ctx context.Context, c *call, around int64) (*reply, error) {
	var now int64
	if s.now != nil {
		now = s.micro()
		around = now
	}
	nonce := int64(s.nonce.Add(1) & (1<<50 - 1))
	message, err := s.run(ctx, c.keys, string(c.pack(nil, now, nonce, s.margin, around)))
	if err != nil {
		return nil, err
	}
	r, err := c.read(message, nonce)
	if err != nil {
		if errors.Is(err, errForeign) {
			s.watched.drop()
		}
		return nil, fmt.Errorf("redisstore: reply: %w", err)
	}
	return r, nil
}
