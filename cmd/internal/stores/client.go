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

// Memory is a store in this process.
func Memory() Opened { return Alone(memstore.New(), func() {}) }

// Redis is a store on the servers of a client, which Close closes. Its first answer is waited for, but not for long: a
// server that is away is no error.
func Redis(ctx context.Context, client rueidis.Client, prefix string) (Opened, error) {
	r, err := redisstore.Open(redisstore.Config{Client: client, KeyPrefix: prefix})
	if err != nil {
		return Opened{}, err
	}
	o := Alone(r, client.Close)
	o.Run, o.Instances = heartbeat(r), r.Instances
	_ = await(ctx, r.Join) // its heartbeat tries again
	return o, nil
}

// Memcached is a store on servers of Memcached. Its first answer is waited for, but not for long: a server that is away is
// no error.
func Memcached(ctx context.Context, addrs []string, secure *tls.Config, prefix string) (Opened, error) {
	m, err := memcachestore.Open(memcachestore.Config{Addrs: addrs, TLS: secure, KeyPrefix: prefix})
	if err != nil {
		return Opened{}, err
	}
	_ = await(ctx, m.Connect) // decisions try again
	return Alone(m, func() { _ = m.Close() }), nil
}

// Alone is a store that no other process is known to share, and how to close it.
func Alone(s sluice.Store, end func()) Opened {
	o := Opened{Store: s, Run: func(context.Context) {}, Close: end, Instances: func() int { return 1 }}
	if p, ok := s.(pinger); ok {
		o.Ping = p.Ping
	}
	return o
}

// heartbeat tells the other processes at the store that this one is there.
func heartbeat(r *redisstore.Store) func(context.Context) {
	return func(ctx context.Context) { _ = r.Heartbeat(ctx) } // it returns nil
}
