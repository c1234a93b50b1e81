package envoyratelimit

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/stores"
)

// openStore connects to the store that the settings name. It returns an error if they make no sense, and one that wraps
// sluice.ErrUnavailable if the server does not answer.
func openStore(ctx context.Context, s *Settings) (stores.Opened, error) {
	switch s.Backend {
	case "memory":
		return stores.Memory(), nil
	case "memcache":
		return openMemcache(ctx, s)
	}
	first, err := openRedis(ctx, s, &s.Redis, "REDIS_")
	if err != nil || !s.UsePerSecond {
		return first, err
	}
	second, err := openRedis(ctx, s, &s.PerSecond, "REDIS_PERSECOND_")
	if err != nil {
		first.Close()
		return stores.Opened{}, err
	}
	both := first
	both.Store = &split{first.Store.(sluice.RemoteStore), second.Store.(sluice.RemoteStore)}
	both.Close = func() {
		first.Close()
		second.Close()
	}
	return both, nil
}

// keysBelow is what our keys begin with, after the prefix that the settings give.
const keysBelow = "sluice:"

func openRedis(ctx context.Context, s *Settings, redis *RedisSettings, prefix string) (stores.Opened, error) {
	option, err := redisOption(redis)
	if err != nil {
		return stores.Opened{}, fmt.Errorf("%sURL, %sTLS…: %w", prefix, prefix, err)
	}
	client, err := rueidis.NewClient(option)
	if err != nil {
		return stores.Opened{}, fmt.Errorf("%sURL: %w: %w", prefix, sluice.ErrUnavailable, err)
	}
	if s.Counting.EnvoyKeys {
		store := &envoyKeys{client: client, prefix: s.Counting.Prefix, jitter: s.Counting.ExpiryJitter, now: time.Now}
		return stores.Alone(store, client.Close), nil
	}
	store, err := stores.Redis(ctx, client, s.Counting.Prefix+keysBelow)
	if err != nil {
		client.Close()
	}
	return store, err
}

func openMemcache(ctx context.Context, s *Settings) (stores.Opened, error) {
	m := &s.Memcache
	addrs := m.Addrs
	if m.SRV != "" {
		service, rest, _ := strings.Cut(strings.TrimPrefix(m.SRV, "_"), "._")
		proto, name, ok := strings.Cut(rest, ".")
		if !ok {
			return stores.Opened{}, errors.New("MEMCACHE_SRV: write _service._proto.name, such as _memcache._tcp.example.com")
		}
		_, found, err := net.DefaultResolver.LookupSRV(ctx, service, proto, name)
		if err != nil {
			return stores.Opened{}, fmt.Errorf("MEMCACHE_SRV: %w: %w", sluice.ErrUnavailable, err)
		}
		for _, f := range found {
			addrs = append(addrs, net.JoinHostPort(strings.TrimSuffix(f.Target, "."), fmt.Sprint(f.Port)))
		}
	}
	var secure *tls.Config
	if m.TLS {
		var err error
		if secure, err = clientTLS(m.Cert, m.Key, m.CA, m.SkipHostname); err != nil {
			return stores.Opened{}, fmt.Errorf("MEMCACHE_TLS…: %w", err)
		}
	}
	store, err := stores.Memcached(ctx, addrs, secure, s.Counting.Prefix+keysBelow)
	if err != nil {
		return stores.Opened{}, fmt.Errorf("MEMCACHE_HOST_PORT: %w", err)
	}
	return store, nil
}

// split has the counts of seconds in a store of their own.
type split struct{ others, seconds sluice.RemoteStore }

var _ sluice.RemoteStore = (*split)(nil)

func (s *split) Shards() int { return s.others.Shards() + s.seconds.Shards() }

func (s *split) Shard(t *sluice.Take) int {
	if perSecond(t) {
		return s.others.Shards() + s.seconds.Shard(t)
	}
	return s.others.Shard(t)
}

func perSecond(t *sluice.Take) bool { return t.Rule.Limit.Window == time.Second }

// Apply asks both stores, if both are concerned. Counting is never refused, so that neither has to wait for the other.
func (s *split) Apply(ctx context.Context, takes []sluice.Take, out []sluice.Decision) error {
	seconds := 0
	for i := range takes {
		if perSecond(&takes[i]) {
			seconds++
		}
	}
	switch seconds {
	case 0:
		return s.others.Apply(ctx, takes, out)
	case len(takes):
		return s.seconds.Apply(ctx, takes, out)
	}
	var (
		parts   [2][]sluice.Take
		answers [2][]sluice.Decision
	)
	part := func(t *sluice.Take) int {
		if perSecond(t) {
			return 1
		}
		return 0
	}
	for i := range takes {
		p := part(&takes[i])
		parts[p], answers[p] = append(parts[p], takes[i]), append(answers[p], sluice.Decision{})
	}
	done := make(chan error, 1)
	go func() { done <- s.seconds.Apply(ctx, parts[1], answers[1]) }()
	err := s.others.Apply(ctx, parts[0], answers[0])
	if err := errors.Join(err, <-done); err != nil {
		return err
	}
	var next [2]int
	for i := range takes {
		p := part(&takes[i])
		out[i] = answers[p][next[p]]
		next[p]++
	}
	return nil
}

// lazyStore is a store that is not there yet. Until then it fails, which the limiter's fail modes answer.
type lazyStore struct {
	servers int
	store   atomic.Pointer[sluice.RemoteStore]
}

var (
	_        sluice.RemoteStore = (*lazyStore)(nil)
	errEarly                    = fmt.Errorf("the store has not answered since the start: %w", sluice.ErrUnavailable)
)

// servers is how many servers of the store can fail by themselves, as far as can be known before it is open.
func (s *Settings) servers() int {
	if s.Backend == "memcache" {
		return max(1, len(s.Memcache.Addrs))
	}
	n := 0
	for _, redis := range []*RedisSettings{&s.Redis, &s.PerSecond} {
		switch {
		case redis == &s.PerSecond && !s.UsePerSecond:
		case redis.Type == "CLUSTER" && !s.Counting.EnvoyKeys:
			n += 16 // parts of a Cluster that redisstore tells apart
		default:
			n++
		}
	}
	return n
}

func (s *lazyStore) Shards() int { return s.servers }

func (s *lazyStore) Shard(t *sluice.Take) int {
	if store := s.store.Load(); store != nil {
		return (*store).Shard(t) // the limiter takes it modulo the number
	}
	return 0
}

func (s *lazyStore) Apply(ctx context.Context, takes []sluice.Take, out []sluice.Decision) error {
	if store := s.store.Load(); store != nil {
		return (*store).Apply(ctx, takes, out)
	}
	return errEarly
}
