// Package goredis adapts a go-redis client for package redisstore.
//
//	options := &redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true}
//	options.Dialer = goredis.Dialer(redis.NewDialer(options))
//	client := redis.NewClient(options)
//	commander, err := goredis.New(client)
//	store, err := redisstore.Open(redisstore.Config{Commander: commander})
//
// The client may be a Client, a ClusterClient or a FailoverClient. This is a separate package so that programs without
// go-redis do not link it. The store's own client, which redisstore.Config.URL creates, writes the commands of many
// callers at once and so achieves more with fewer connections.
//
// go-redis resends commands by default. The commands of the store are marked so that it does not, because a take that
// may have been charged must not be charged twice.
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

// Commander implements [redisstore.Commander] for a go-redis client.
type Commander struct {
	client redis.UniversalClient
}

var _ redisstore.Commander = (*Commander)(nil)

// New returns a commander for the client, which the caller closes. The client must have ContextTimeoutEnabled set,
// because go-redis otherwise ignores the deadlines of contexts.
func New(client redis.UniversalClient) (*Commander, error) {
	heeds := true
	switch c := client.(type) {
	case nil:
		return nil, errors.New("goredis: client is nil")
	case *redis.Client:
		heeds = c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		heeds = c.Options().ContextTimeoutEnabled
	case *redis.Ring:
		return nil, errors.New("goredis: redis.Ring is not supported, because it distributes the keys of one call over servers: use a ClusterClient, or a store per server")
	}
	if !heeds {
		return nil, errors.New("goredis: set ContextTimeoutEnabled in the client's options: without it go-redis waits beyond a decision's deadline")
	}
	return &Commander{client}, nil
}

// Dialer returns a function for the Dialer option of a go-redis client. It connects with dial and bounds the length,
// the number of elements and the depth of a server's replies. Without it a faulty server can crash the process, because
// go-redis allocates as much as a server announces. A reply that has arrived when the read deadline expires is still
// read.
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

// once is a command that go-redis does not resend. go-redis calls NoRetry to find out.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

// Do sends a command; see [redisstore.Commander].
func (c *Commander) Do(ctx context.Context, command ...string) (any, error) {
	args := make([]any, len(command))
	for i := range command {
		args[i] = command[i]
	}
	cmd := redis.NewCmd(ctx, args...)
	if err := c.client.Process(ctx, once{cmd}); err != nil {
		if until, ok := ctx.Deadline(); ok && !time.Now().Before(until) { // go-redis reports this as a network error
			err = fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
		}
		return nil, asError(err)
	}
	return cmd.Val(), nil
}

// asError converts an error of go-redis to the errors that a store's Commander returns.
func asError(err error) error {
	var said redis.Error
	switch {
	case errors.Is(err, redis.Nil):
		return nil
	case errors.As(err, &said):
		return redisstore.ServerError(said.Error())
	case errors.Is(err, redis.ErrClosed):
		return fmt.Errorf("%w: %w", sluice.ErrClosed, err)
	case errors.Is(err, redis.ErrPoolTimeout): // the command was not sent
		return &net.OpError{Op: "dial", Net: "tcp", Err: err}
	}
	return err
}

// Cluster reports whether the client is a ClusterClient.
func (c *Commander) Cluster() bool {
	_, ok := c.client.(*redis.ClusterClient)
	return ok
}

// Primaries returns a commander for each server that holds keys.
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
