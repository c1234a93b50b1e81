package envoyratelimit

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/sluiceproject/sluice"
)

// envoyMemcached counts in the reference's own keys on Memcached, by commands that the reference's go along with. Windows are
// by this process' clock, and different descriptors may share a key. Unlike the reference it counts before it answers.
//
// It serves the counters of this package, whose takes are never refused.
type envoyMemcached struct {
	servers []*memcachedServer
	prefix  string
	jitter  int64 // seconds
	now     func() time.Time
}

var _ sluice.RemoteStore = (*envoyMemcached)(nil)

func newEnvoyMemcached(addrs []string, secure *tls.Config, prefix string, jitter int64) *envoyMemcached {
	s := &envoyMemcached{prefix: prefix, jitter: jitter, now: time.Now}
	for _, addr := range addrs {
		s.servers = append(s.servers, newMemcachedServer(addr, secure))
	}
	return s
}

// Shards is the number of servers.
func (s *envoyMemcached) Shards() int { return len(s.servers) }

// Shard is the server that has the take's count.
func (s *envoyMemcached) Shard(t *sluice.Take) int { return s.pick(s.key(t, s.now())) }

// pick chooses the server of a key as the reference's client does.
func (s *envoyMemcached) pick(key string) int {
	return int(crc32.ChecksumIEEE([]byte(key)) % uint32(len(s.servers)))
}

// Ping reports whether all servers can be called.
func (s *envoyMemcached) Ping(ctx context.Context) error {
	for _, server := range s.servers {
		if err := server.ping(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *envoyMemcached) close() {
	for _, server := range s.servers {
		server.close()
	}
}

// Apply counts the takes. All takes of a key are one change of its count, and the changes of all keys on a server are sent
// together: the number of round trips does not grow with the number of takes, up to maxMemcachedBatch.
func (s *envoyMemcached) Apply(ctx context.Context, takes []sluice.Take, out []sluice.Decision) error {
	now := s.now()
	changes := make(map[string]*memcachedChange, len(takes))
	byServer := make([][]*memcachedChange, len(s.servers))
	of := make([]*memcachedChange, len(takes))
	for i := range takes {
		t := &takes[i]
		key := s.key(t, now)
		c := changes[key]
		if c == nil {
			c = &memcachedChange{key: key, expiry: s.expiry(t, now)}
			changes[key] = c
			n := s.pick(key)
			byServer[n] = append(byServer[n], c)
		}
		c.costs = append(c.costs, t.Cost)
		of[i] = c
	}
	if err := s.apply(ctx, byServer); err != nil {
		return fmt.Errorf("memcached: %w: %w", sluice.ErrUnavailable, err)
	}
	for i := range takes {
		out[i] = counterDecision(&takes[i], of[i].next(), now)
	}
	return nil
}

// apply makes the changes at all servers at the same time.
func (s *envoyMemcached) apply(ctx context.Context, byServer [][]*memcachedChange) error {
	errs := make([]error, len(byServer))
	var group sync.WaitGroup
	last := -1 // of the servers, the one that this goroutine calls
	for n, changes := range byServer {
		if len(changes) == 0 {
			continue
		}
		if last >= 0 {
			group.Go(func() { errs[n] = s.servers[n].apply(ctx, changes) })
		} else {
			last = n
		}
	}
	if last >= 0 {
		errs[last] = s.servers[last].apply(ctx, byServer[last])
	}
	group.Wait()
	return errors.Join(errs...)
}

// maxRelative is the longest expiry that Memcached counts from now, in seconds. It takes longer ones for a time since 1970:
// those of the reference have passed by then.
const maxRelative = 30 * 24 * 60 * 60

func (s *envoyMemcached) expiry(t *sluice.Take, now time.Time) int64 {
	seconds := int64(t.Rule.Limit.Window / time.Second)
	if s.jitter > 0 {
		seconds += rand.Int64N(s.jitter)
	}
	if seconds > maxRelative {
		seconds += now.Unix()
	}
	return seconds
}

// key is the reference's key, or a digest of one that Memcached does not take.
func (s *envoyMemcached) key(t *sluice.Take, now time.Time) string {
	seconds := int64(t.Rule.Limit.Window / time.Second)
	key := s.prefix + t.Key + strconv.FormatInt(now.Unix()/seconds*seconds, 10)
	legal := len(key) <= 250
	for i := 0; i < len(key) && legal; i++ {
		legal = key[i] > ' ' && key[i] != 0x7f
	}
	if legal {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return keysBelow + hex.EncodeToString(sum[:])
}
