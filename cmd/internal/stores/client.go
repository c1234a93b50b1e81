package stores

import (
	"context"
	"crypto/tls"

	"github.com/redis/rueidis"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/memcachestore"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/redisstore"
)

// Memory returns a store in this process.
func Memory() Opened { return Alone(memstore.New(), func() {}) }

// Redis returns a store that uses a client, which Close closes. It waits up to 1 s for the first reply; an unavailable
// server is not an error.
func Redis(ctx context.Context, client rueidis.Client, prefix string) (Opened, error) {
	r, err := redisstore.Open(redisstore.Config{Client: client, KeyPrefix: prefix})
	if err != nil {
		return Opened{}, err
	}
	o := Alone(r, client.Close)
	o.Run, o.Instances = heartbeat(r), r.Instances
	_ = await(ctx, r.Join) // Heartbeat retries
	return o, nil
}

// Memcached returns a store on Memcached servers. It waits up to 1 s for the first reply; an unavailable server is not
// an error.
func Memcached(ctx context.Context, addrs []string, secure *tls.Config, prefix string) (Opened, error) {
	m, err := memcachestore.Open(memcachestore.Config{Addrs: addrs, TLS: secure, KeyPrefix: prefix})
	if err != nil {
		return Opened{}, err
	}
	_ = await(ctx, m.Connect) // decisions retry
	return Alone(m, func() { _ = m.Close() }), nil
}

// Alone returns an Opened for a store without other known instances, with its function to close it.
func Alone(s sluice.Store, end func()) Opened {
	o := Opened{Store: s, Run: func(context.Context) {}, Close: end, Instances: func() int { return 1 }}
	if p, ok := s.(pinger); ok {
		o.Ping = p.Ping
	}
	return o
}

// heartbeat returns the function that counts this process among the instances of the store.
func heartbeat(r *redisstore.Store) func(context.Context) {
	return func(ctx context.Context) { _ = r.Heartbeat(ctx) } // always returns nil
}
