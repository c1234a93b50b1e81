package redisstore

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"strconv"
	"time"
)

// heartbeatEvery is how often a process says that it is there, and missedBeats how many it may miss before the others
// take it for gone.
const (
	heartbeatEvery = 5 * time.Second
	missedBeats    = 3
)

// Heartbeat counts this process among those that share the store, until the context ends; then it returns nil.
// [Store.Nodes] is how many there are, to be given to a limiter:
//
//	go store.Heartbeat(ctx)
//	limiter, err := sluice.New(store, "api", limit, sluice.WithNodes(store.Nodes))
//
// A process that dies is counted for some 15 seconds more. Times are the server's.
func (s *Store) Heartbeat(ctx context.Context) error {
	var random [9]byte
	_, _ = rand.Read(random[:]) // it never fails
	member := base64.RawURLEncoding.EncodeToString(random[:])
	tick := time.NewTicker(s.every)
	defer tick.Stop()
	for {
		s.beat(ctx, member)
		select {
		case <-ctx.Done():
			s.leave(context.WithoutCancel(ctx), member)
			return nil
		case <-tick.C:
		}
	}
}

// Nodes is how many processes with a [Store.Heartbeat] there were when the server was last asked, and at least 1.
func (s *Store) Nodes() int { return max(1, int(s.nodes.Load())) }

// nodesKey is a sorted set of processes by when they were last heard of, in milliseconds.
func (s *Store) nodesKey() string { return s.names.prefix + string(version) + "nodes" }

// beat says that this process is there and counts those that are. If the server does not answer, the last number stays:
// it is when the server is away that the number is needed.
func (s *Store) beat(ctx context.Context, member string) {
	ctx, cancel := context.WithTimeout(ctx, s.every)
	defer cancel()
	micros, err := s.micros(ctx)
	if err != nil {
		return
	}
	now := micros / 1000
	key, old := s.nodesKey(), strconv.FormatInt(now-(missedBeats*s.every).Milliseconds(), 10)
	ttl := strconv.FormatInt(2*(missedBeats*s.every).Milliseconds(), 10)
	if s.do(ctx, "ZADD", key, strconv.FormatInt(now, 10), member) != nil ||
		s.do(ctx, "ZREMRANGEBYSCORE", key, "-inf", "("+old) != nil ||
		s.do(ctx, "PEXPIRE", key, ttl) != nil {
		return
	}
	if reply, err := s.ask(ctx, "ZCARD", key); err == nil {
		if n, err := reply.AsInt64(); err == nil {
			s.nodes.Store(n)
		}
	}
}

// leave says that this process is going. If that fails the others will notice.
func (s *Store) leave(ctx context.Context, member string) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = s.do(ctx, "ZREM", s.nodesKey(), member)
}
