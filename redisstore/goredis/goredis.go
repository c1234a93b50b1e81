// Package goredis has a Redis store use the caller's own go-redis client.
//
//	options := &redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true}
//	options.Dialer = goredis.Dialer(redis.NewDialer(options))
//	client := redis.NewClient(options)
//	commander, err := goredis.New(client)
//	store, err := redisstore.Open(redisstore.Config{Commander: commander})
//
// A Client, a ClusterClient and a FailoverClient will do. It is a package of its own so that who does not use go-redis
// does not link it. The store's own client, which redisstore.Config.URL makes, writes the commands of many callers at once
// and so does more with fewer connections.
//
// go-redis sends commands again by default. Those of the store are marked so that it does not: a take that may have been
// charged must not be charged twice.
package goredis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/redisstore"
)

// Commander sends a store's commands by a go-redis client.
type Commander struct {
	client redis.UniversalClient
}

var _ redisstore.Commander = (*Commander)(nil)

// New returns a commander for the client, which stays the caller's to close. The client must heed the deadlines of
// contexts, which go-redis does only if told so.
func New(client redis.UniversalClient) (*Commander, error) {
	heeds := true
	switch c := client.(type) {
	case nil:
		return nil, errors.New("goredis: the client is nil")
	case *redis.Client:
		heeds = c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		heeds = c.Options().ContextTimeoutEnabled
	case *redis.Ring:
		return nil, errors.New("goredis: a Ring spreads the keys of one call over servers: use a ClusterClient, or a store for each server")
	}
	if !heeds {
		return nil, errors.New("goredis: set ContextTimeoutEnabled in the client's options: without it go-redis waits beyond a decision's deadline")
	}
	return &Commander{client}, nil
}

// Dialer returns a function for the Dialer option of a go-redis client, which connects by dial and bounds what a server may
// send: the length, the elements and the depth of a reply. go-redis allocates whatever a server announces, so without it a
// faulty server can end the process. A reply that has come when its time is up is read.
//
//	options.Dialer = goredis.Dialer(redis.NewDialer(options))
func Dialer(dial func(ctx context.Context, network, addr string) (net.Conn, error)) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return redisstore.Guard(conn, addr), nil
	}
}

// once is a command that is sent once. go-redis asks commands by this method.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

// Do sends a command.
func (c *Commander) Do(ctx context.Context, command ...string) (any, error) {
	args := make([]any, len(command))
	for i := range command {
		args[i] = command[i]
	}
	cmd := redis.NewCmd(ctx, args...)
	if err := c.client.Process(ctx, once{cmd}); err != nil {
		if until, ok := ctx.Deadline(); ok && !time.Now().Before(until) { // go-redis says it was the network's
			err = fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
		}
		return nil, asError(err)
	}
	return cmd.Val(), nil
}

// asError says an error of go-redis in the words of a store's commander.
func asError(err error) error {
	var said redis.Error
	switch {
	case errors.Is(err, redis.Nil):
		return nil
	case errors.As(err, &said):
		return redisstore.ServerError(said.Error())
	case errors.Is(err, redis.ErrClosed):
		return fmt.Errorf("%w: %w", sluice.ErrClosed, err)
	case errors.Is(err, redis.ErrPoolTimeout): // it has not been sent
		return &net.OpError{Op: "dial", Net: "tcp", Err: err}
	}
	return err
}

// Cluster tells whether the client is one of a Cluster.
func (c *Commander) Cluster() bool {
	_, ok := c.client.(*redis.ClusterClient)
	return ok
}

// Primaries are the servers that hold the keys.
func (c *Commander) Primaries(ctx context.Context) ([]redisstore.Commander, error) {
	cluster, ok := c.client.(*redis.ClusterClient)
	if !ok {
		return []redisstore.Commander{c}, nil
	}
	var (
		mu    sync.Mutex // guards nodes
		nodes []*redis.Client
	)
	err := cluster.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		nodes = append(nodes, node)
		return nil
	})
	slices.SortFunc(nodes, func(a, b *redis.Client) int { return cmp.Compare(a.Options().Addr, b.Options().Addr) })
	primaries := make([]redisstore.Commander, len(nodes))
	for i, node := range nodes {
		primaries[i] = &Commander{node}
	}
	return primaries, err
}
