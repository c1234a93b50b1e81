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

// heartbeatInterval is how often an instance sends a heartbeat, and missedBeats how many heartbeats it may miss before
// the other instances no longer count it.
const (
	heartbeatInterval = time.Second
	missedBeats       = 3
)

// members is the state of the heartbeats of this instance.
type members struct {
	self string

	mu      sync.Mutex             // held during a beat; guards the fields below
	last    [missedBeats + 1]int64 // numbers of instances at the last heartbeats, newest first
	joined  int64                  // when this instance joined, in milliseconds of the server's clock
	settled bool                   // all other instances have counted since then, and so include this one
	beaten  time.Time              // time of the last successful heartbeat
}

func newMembers() members {
	var random [9]byte
	_, _ = rand.Read(random[:]) // never fails
	return members{self: base64.RawURLEncoding.EncodeToString(random[:])}
}

// Heartbeat counts this process among the instances that share the store. It blocks until the context ends and then
// returns nil. Pass [Store.Instances], the number of instances, to a limiter:
//
//	err := store.Join(ctx) // so that the number is available before the first request
//	go store.Heartbeat(ctx)
//	limiter, err := sluice.New(store, "api", limit, sluice.WithInstances(store.Instances))
//
// A process that crashes is counted for about 6 s longer, by the server's clock.
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

// Join connects to the server, so that the first decisions need not wait for a connection, counts this process among
// the instances, and reads their number. Call it before the first decision, and then [Store.Heartbeat]. An error wraps
// [sluice.ErrUnavailable]; Heartbeat retries.
func (s *Store) Join(ctx context.Context) error {
	_ = s.warm(ctx) // beat returns the error
	return s.beat(ctx)
}

// Instances returns the number of processes with a [Store.Heartbeat] that share the store. It is the maximum of the
// last successful heartbeats, so that it does not drop when a server loses its data or is unavailable for a while. It
// is 0 until this process has read the number and all other instances have counted this process, which takes about one
// second.
func (s *Store) Instances() int { return int(s.nodes.Load()) }

// nodesKey returns the key of the sorted set of instances. Scores are the times of their last heartbeats in
// milliseconds.
func (s *Store) nodesKey() string { return s.names.prefix + string(version) + "nodes" }

// beat sends a heartbeat and counts the instances. If it fails, the last number remains valid, because the number is
// needed exactly when the server is unavailable.
//
// A new instance is not counted by the others until their next heartbeats. If it used its share of a limit earlier, the
// shares would add up to more than the limit. So the number stays 0 until the others have counted this instance.
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
		if m.joined, err = s.millis(ctx); err != nil { // read after the ZADD, not before
			return err
		}
		// If the server has lost its data, the other instances still count this one, unless they have dropped it after
		// missed heartbeats.
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
			unaware-- // this instance
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

// millis returns the server's time in milliseconds.
func (s *Store) millis(ctx context.Context) (int64, error) {
	micros, err := s.micros(ctx)
	return micros / 1000, err
}

// askNumber sends a command and returns its numeric reply.
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

// leave removes this instance from the set. If that fails, the other instances drop it after missed heartbeats.
func (s *Store) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = s.do(ctx, "ZREM", s.nodesKey(), s.members.self)
}
