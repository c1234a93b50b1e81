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

// Commander sends commands to Redis. It is all that the store asks of a client, so that any library can be used:
// package goredis makes one of a go-redis client. It is safe for concurrent use.
type Commander interface {
	// Do sends a command, its name first, and returns the reply: nil, an int64, a string or a []any of those. In a
	// Cluster the command's keys say where to.
	//
	// It must not send a command again that may have been run: a take would be charged twice. If the server replies
	// with an error that is a [ServerError], alone or wrapped; of a closed client it is one that wraps [sluice.ErrClosed].
	Do(ctx context.Context, command ...string) (any, error)
	// Cluster reports whether the servers are a Redis Cluster.
	Cluster() bool
	// Primaries are the servers that hold the keys, one by one and always in the same order.
	Primaries(ctx context.Context) ([]Commander, error)
}

// ServerError is an error that the server replied with, as it is worded there.
type ServerError string

func (e ServerError) Error() string { return string(e) }

// Guard returns a connection to use in place of conn, for a Commander that dials servers itself. It bounds what the server
// at addr may send: the length, the elements and the depth of a reply. Client libraries allocate what a server announces;
// a reply that exceeds a bound closes the connection instead. If conn is not secured by TLS, a reply that has come when its
// time is up is read.
func Guard(conn net.Conn, addr string) net.Conn {
	return replyguard.Redis(new(arrival.Waits).Made(conn), addr)
}

// direct is a rueidis client as a Commander.
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
			continue // one that is away holds nothing that could be listed
		}
		if what, err := role[0].ToString(); err == nil && what == "master" {
			primaries = append(primaries, direct{nodes[addr]})
		}
	}
	if len(primaries) == 0 {
		return nil, errors.New("no primary answers")
	}
	return primaries, nil
}

// asError says a client's error in the words of a Commander.
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
