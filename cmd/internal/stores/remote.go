package stores

import (
	"context"
	"sync/atomic"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/config"
)

// askRemote says how the servers of a store are asked, if it has any.
func (o *Opened) askRemote(kind string) {
	r, ok := o.Store.(sluice.RemoteStore)
	if !ok {
		return
	}
	o.Servers = r.Shards
	if p, ok := r.(pinger); ok {
		o.Ping = p.Ping
		if kind == config.Redis {
			o.Servers, o.Ping = redisServers(r, p)
		}
	}
}

type pinger interface{ Ping(context.Context) error }

// redisServers says that there is one server until Redis has answered: only then it is known whether it is a cluster.
func redisServers(r sluice.RemoteStore, p pinger) (servers func() int, ping func(context.Context) error) {
	var answered atomic.Bool
	servers = func() int {
		if !answered.Load() {
			return 1
		}
		return r.Shards()
	}
	ping = func(ctx context.Context) error {
		err := p.Ping(ctx)
		if err == nil {
			answered.Store(true)
		}
		return err
	}
	return servers, ping
}
