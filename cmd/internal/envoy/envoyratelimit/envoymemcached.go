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

// envoyMemcached counts in the reference's keys on Memcached, with commands that are compatible with those of the reference.
// Windows follow the clock of this process, and different descriptors may share a key. Unlike the reference it counts before
// it responds.
//
// It is used for the counters of this package, whose takes are never denied.
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

// Shards returns the number of servers.
func (s *envoyMemcached) Shards() int { return len(s.servers) }

// Shard returns the index of the server that stores the count of the take.
func (s *envoyMemcached) Shard(t *sluice.Take) int { return s.pick(s.key(t, s.now())) }

// pick returns the index of the server of a key, as the client of the reference does.
func (s *envoyMemcached) pick(key string) int {
	return int(crc32.ChecksumIEEE([]byte(key)) % uint32(len(s.servers)))
}

// Ping returns an error if a server is unavailable.
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

// Apply counts the takes. All takes of a key are one change of its count, and the changes of all keys on a server are
// pipelined: up to maxMemcachedBatch, the number of round trips does not depend on the number of takes.
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

// apply makes the changes on all servers concurrently.
func (s *envoyMemcached) apply(ctx context.Context, byServer [][]*memcachedChange) error {
	errs := make([]error, len(byServer))
	var group sync.WaitGroup
	last := -1 // index of the server that this goroutine calls
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

// maxRelative is the maximum relative expiry of Memcached, in seconds. Longer ones are Unix times; those that the reference
// sends are in the past.
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

// key returns the reference's key, or a digest of it if Memcached does not accept it.
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
