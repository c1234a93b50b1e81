package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/redis/rueidis"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/arrival"
	"github.com/sluiceproject/sluice/internal/replyguard"
)

// Commander sends commands to Redis. The store needs nothing else of a client library, so any library can be used;
// package goredis implements a Commander for go-redis. A Commander must be safe for concurrent use.
type Commander interface {
	// Do sends a command, its name first, and returns the reply: nil, an int64, a string or a []any of those. In a
	// Cluster the command's keys determine the server.
	//
	// Do must not resend a command that may have been executed, because a take would be charged twice. If the server
	// replies with an error, Do returns a [ServerError], possibly wrapped. If the client is closed, it returns an error
	// that wraps [sluice.ErrClosed].
	Do(ctx context.Context, command ...string) (any, error)
	// Cluster reports whether the servers are a Redis Cluster.
	Cluster() bool
	// Primaries returns a Commander for each server that holds keys, always in the same order.
	Primaries(ctx context.Context) ([]Commander, error)
}

// ServerError is an error reply of the server, verbatim.
type ServerError string

func (e ServerError) Error() string { return string(e) }

// Guard returns a connection that wraps conn, for a Commander that dials servers itself. It bounds the length, the
// number of elements and the depth of a reply from the server at addr. Client libraries allocate as much as a server
// announces; here a reply that exceeds a bound closes the connection instead. If conn does not use TLS, a reply that
// has arrived when the read deadline expires is still read.
func Guard(conn net.Conn, addr string) net.Conn {
	return replyguard.Redis(new(arrival.Waits).Made(conn), addr)
}

// direct implements Commander for a rueidis client.
type direct struct{ rueidis.Client }

var (
	_ Commander = direct{}
	_ evaluator = direct{}
)

func (c direct) Do(ctx context.Context, command ...string) (any, error) {
	b := c.B().Arbitrary(command[0])
	switch rest := command[1:]; command[0] {
	case "SCRIPT", "TIME", "SCAN", "PING", "INFO", "CLUSTER":
		b = b.Args(rest...)
	case "DEL":
		b = b.Keys(rest...)
	default:
		b = b.Keys(rest[0]).Args(rest[1:]...)
	}
	reply, err := c.Client.Do(ctx, b.Build()).ToAny()
	if rueidis.IsRedisNil(err) {
		return nil, nil
	}
	return reply, asError(err)
}

func (c direct) Cluster() bool { return c.Mode() == rueidis.ClientModeCluster }

func (c direct) Primaries(ctx context.Context) ([]Commander, error) {
	if !c.Cluster() {
		return []Commander{c}, nil
	}
	nodes := c.Nodes()
	addrs := make([]string, 0, len(nodes))
	for addr := range nodes {
		addrs = append(addrs, addr)
	}
	slices.SortFunc(addrs, cmp.Compare)
	var primaries []Commander
	for _, addr := range addrs {
		role, err := nodes[addr].Do(ctx, nodes[addr].B().Role().Build()).ToArray()
		if err != nil || len(role) == 0 {
			continue // an unavailable server holds no keys that could be listed
		}
		if what, err := role[0].ToString(); err == nil && what == "master" {
			primaries = append(primaries, direct{nodes[addr]})
		}
	}
	if len(primaries) == 0 {
		return nil, errors.New("no primary replied")
	}
	return primaries, nil
}

// asError converts a client's error to the errors that a Commander returns.
func asError(err error) error {
	if err == nil {
		return nil
	}
	var said *rueidis.RedisError
	switch {
	case errors.As(err, &said):
		return ServerError(strings.TrimPrefix(said.Error(), "-"))
	case errors.Is(err, rueidis.ErrClosing):
		return fmt.Errorf("%w: %w", sluice.ErrClosed, err)
	}
	return err
}
