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
	"strings"
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
		if _, err := server.do(ctx, "version\r\n"); err != nil {
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

// Apply counts the takes.
func (s *envoyMemcached) Apply(ctx context.Context, takes []sluice.Take, out []sluice.Decision) error {
	now := s.now()
	for i := range takes {
		t := &takes[i]
		n, err := s.count(ctx, t, s.key(t, now), now)
		if err != nil {
			return fmt.Errorf("memcached: %w: %w", sluice.ErrUnavailable, err)
		}
		out[i] = counterDecision(t, n, now)
	}
	return nil
}

var errNotFound = errors.New("there is no such key")

// count changes a count and returns it. A refund does not go below 0, and does nothing where there is no count.
func (s *envoyMemcached) count(ctx context.Context, t *sluice.Take, key string, now time.Time) (int64, error) {
	server := s.servers[s.pick(key)]
	if t.Cost < 0 {
		return s.refund(ctx, t, key, now)
	}
	increase := fmt.Sprintf("incr %s %d\r\n", key, t.Cost)
	n, err := countOf(server.do(ctx, increase))
	if !errors.Is(err, errNotFound) {
		return n, err
	}
	value := strconv.FormatInt(t.Cost, 10)
	switch reply, err := server.do(ctx, fmt.Sprintf("add %s 0 %d %d\r\n%s\r\n", key, s.expiry(t, now), len(value), value)); {
	case err != nil:
		return 0, err
	case reply == "STORED":
		return t.Cost, nil
	case reply != "NOT_STORED":
		return 0, fmt.Errorf("the reply to add is %q", reply)
	}
	return countOf(server.do(ctx, increase)) // another instance was first
}

// refund lowers a count by compare-and-swap. Memcached's decr is no choice, because it pads a number that gets shorter with
// spaces: the reference reads "9 " as no number, and so as 0. A swap that another instance's count came before is tried again
// until ctx is done. The swap sets the expiry anew; the key has the window's start in it, so it counts no longer than before.
func (s *envoyMemcached) refund(ctx context.Context, t *sluice.Take, key string, now time.Time) (int64, error) {
	server := s.servers[s.pick(key)]
	for {
		reply, err := server.do(ctx, "gets "+key+"\r\n")
		if err != nil {
			return 0, err
		}
		if reply == "END" {
			return 0, nil
		}
		head, value, _ := strings.Cut(reply, "\n")
		fields := strings.Fields(head)                        // VALUE key flags bytes unique
		n, err := countOf(strings.TrimRight(value, " "), nil) // the reference's own refunds may have padded it
		if err != nil || len(fields) != 5 {
			return 0, fmt.Errorf("the reply to gets is %q", reply)
		}
		n = max(0, n+t.Cost)
		value = strconv.FormatInt(n, 10)
		swap := fmt.Sprintf("cas %s %s %d %d %s\r\n%s\r\n", key, fields[2], s.expiry(t, now), len(value), fields[4], value)
		switch reply, err := server.do(ctx, swap); {
		case err != nil:
			return 0, err
		case reply == "STORED":
			return n, nil
		case reply == "NOT_FOUND":
			return 0, nil
		case reply != "EXISTS":
			return 0, fmt.Errorf("the reply to cas is %q", reply)
		}
	}
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

// countOf reads the reply to incr, or a value.
func countOf(reply string, err error) (int64, error) {
	switch {
	case err != nil:
		return 0, err
	case reply == "NOT_FOUND":
		return 0, errNotFound
	}
	n, err := strconv.ParseUint(reply, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("the reply %q is no count", reply)
	}
	return int64(n), nil
}
