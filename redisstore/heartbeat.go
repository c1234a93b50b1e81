package redisstore

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/sluiceproject/sluice"
)

// heartbeatInterval is how often a process says that it is there, and missedBeats how many it may miss before the others
// take it for gone.
const (
	heartbeatInterval = time.Second
	missedBeats       = 3
)

// members is what a process knows of those that share the store.
type members struct {
	self string

	mu      sync.Mutex             // held during a beat; guards the fields below
	last    [missedBeats + 1]int64 // how many there were at the last beats, the newest first
	joined  int64                  // when this process did, in milliseconds of the server
	settled bool                   // all others have counted since, and so count this one
	beaten  time.Time              // when the server last answered a beat
}

func newMembers() members {
	var random [9]byte
	_, _ = rand.Read(random[:]) // it never fails
	return members{self: base64.RawURLEncoding.EncodeToString(random[:])}
}

// Heartbeat counts this process among those that share the store, until the context ends; then it returns nil.
// [Store.Instances] is how many there are, to be given to a limiter:
//
//	err := store.Join(ctx) // so that the number is known before the first request
//	go store.Heartbeat(ctx)
//	limiter, err := sluice.New(store, "api", limit, sluice.WithInstances(store.Instances))
//
// A process that dies is counted for some 6 seconds more. Times are the server's.
func (s *Store) Heartbeat(ctx context.Context) error {
	tick := time.NewTicker(s.every)
	defer tick.Stop()
	for {
		_ = s.beat(ctx)
		select {
		case <-ctx.Done():
			s.leave(context.WithoutCancel(ctx))
			return nil
		case <-tick.C:
		}
	}
}

// Join connects to the server, so that the first decisions need not wait for it, counts this process among those that
// share the store, and reads how many there are. Call it before the first decision, and then [Store.Heartbeat]. An error
// wraps [sluice.ErrUnavailable], and Heartbeat tries again.
func (s *Store) Join(ctx context.Context) error {
	_ = s.warm(ctx) // what is wrong will show
	return s.beat(ctx)
}

// Instances is how many processes with a [Store.Heartbeat] share the store: the largest number of the last heartbeats that the
// server answered, so that a server that loses its data, or is away for a while, makes it no smaller. It is 0 until the
// number is known: when it has been read, and the other processes, each within a second, have counted this one.
func (s *Store) Instances() int { return int(s.nodes.Load()) }

// nodesKey is a sorted set of processes by when they were last heard of, in milliseconds.
func (s *Store) nodesKey() string { return s.names.prefix + string(version) + "nodes" }

// beat says that this process is there and counts those that are. If the server does not answer, the last number stays:
// it is when the server is away that the number is needed.
//
// A process that has just joined is not counted by the others until their next beat. If it took its part of a limit before,
// all together would take more than there is. So the number is not known before the others have counted this process.
func (s *Store) beat(ctx context.Context) error {
	m := &s.members
	m.mu.Lock()
	defer m.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, s.every)
	defer cancel()
	now, err := s.millis(ctx)
	if err != nil {
		return err
	}
	key, old := s.nodesKey(), strconv.FormatInt(now-(missedBeats*s.every).Milliseconds(), 10)
	ttl := strconv.FormatInt(2*(missedBeats*s.every).Milliseconds(), 10)
	added, err := s.askNumber(ctx, "ZADD", key, strconv.FormatInt(now, 10), m.self)
	if err != nil {
		return err
	}
	if added > 0 {
		if m.joined, err = s.millis(ctx); err != nil { // after it was added, not before
			return err
		}
		// If the server has lost its data, the others remember this process. But they may have taken it for gone.
		m.settled = m.settled && time.Since(m.beaten) < 2*s.every
	}
	if err := s.do(ctx, "ZREMRANGEBYSCORE", key, "-inf", "("+old); err != nil {
		return err
	}
	if err := s.do(ctx, "PEXPIRE", key, ttl); err != nil {
		return err
	}
	n, err := s.askNumber(ctx, "ZCARD", key)
	if err != nil {
		return err
	}
	if !m.settled {
		unaware, err := s.askNumber(ctx, "ZCOUNT", key, "-inf", strconv.FormatInt(m.joined, 10))
		if err != nil {
			return err
		}
		if now <= m.joined {
			unaware-- // itself
		}
		m.settled = unaware == 0
	}
	m.beaten = time.Now()
	copy(m.last[1:], m.last[:])
	m.last[0] = n
	if !m.settled {
		s.nodes.Store(0)
		return nil
	}
	for _, before := range m.last {
		n = max(n, before)
	}
	s.nodes.Store(n)
	return nil
}

// millis is the server's time.
func (s *Store) millis(ctx context.Context) (int64, error) {
	micros, err := s.micros(ctx)
	return micros / 1000, err
}

// askNumber sends a command that is answered with a number.
func (s *Store) askNumber(ctx context.Context, command ...string) (int64, error) {
	reply, err := s.ask(ctx, command...)
	if err != nil {
		return 0, err
	}
	n, err := reply.AsInt64()
	if err != nil {
		return 0, fmt.Errorf("redisstore: %w: %s: %w", sluice.ErrUnavailable, command[0], err)
	}
	return n, nil
}

// leave says that this process is going. If that fails the others will notice.
func (s *Store) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = s.do(ctx, "ZREM", s.nodesKey(), s.members.self)
}
