package stores

import (
	"context"
	"sync/atomic"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/redisstore"
)

// askRemote sets the functions for the servers of a remote store.
func (o *Opened) askRemote(c *config.Store) {
	r, ok := o.Store.(sluice.RemoteStore)
	if !ok {
		return
	}
	o.Servers, o.Server = r.Shards, func(n int) string { return at(c.Addresses, n) }
	if p, ok := r.(pinger); ok {
		o.Ping = p.Ping
	}
	if r, ok := r.(*redisstore.Store); ok {
		o.askRedis(r)
	}
}

type pinger interface{ Ping(context.Context) error }

// askRedis reports one shard until Redis has replied, because only then it is known whether the servers are a Cluster.
// The addresses are those of the last successful ping, so that a failed server keeps its address.
func (o *Opened) askRedis(r *redisstore.Store) {
	var replied atomic.Bool
	var names atomic.Pointer[[]string]
	learn := func(ctx context.Context) {
		if all, err := r.ShardServers(ctx); err == nil {
			names.Store(&all)
		}
	}
	o.Servers = func() int {
		if !replied.Load() {
			return 1
		}
		return r.Shards()
	}
	o.Ping = func(ctx context.Context) error {
		err := r.Ping(ctx)
		if err == nil {
			replied.Store(true)
			learn(ctx)
		}
		return err
	}
	o.Server = func(n int) string {
		if all := names.Load(); all != nil {
			return at(*all, n)
		}
		return ""
	}
	_ = await(context.Background(), func(ctx context.Context) error { learn(ctx); return nil })
}

// at returns all[n], or "" if n is out of range.
func at(all []string, n int) string {
	if n < 0 || n >= len(all) {
		return ""
	}
	return all[n]
}
