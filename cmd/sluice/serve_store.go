package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/config"
	"github.com/sluiceproject/sluice/memcachestore"
	"github.com/sluiceproject/sluice/memstore"
	"github.com/sluiceproject/sluice/redisstore"
)

// servedStore is a store with what belongs to it.
type servedStore struct {
	sluice.Store
	options []sluice.Option           // of the limiter
	run     func(ctx context.Context) // beside the service, until the context ends
	close   func()
}

func (s *service) openStore() (servedStore, error) {
	c := &s.cfg.Store
	o := servedStore{options: []sluice.Option{sluice.WithBudget(c.Budget)}, run: func(context.Context) {}, close: func() {}}
	switch c.Kind {
	case config.Redis:
		r := &lateRedis{cfg: redisstore.Config{URL: c.URL, Prefix: c.Prefix}, log: s.log}
		if _, err := r.connect(); err != nil {
			return o, fmt.Errorf("store: %w", err)
		}
		o.Store, o.run, o.close = r, r.run, r.close
		o.options = append(o.options, sluice.WithNodes(r.nodes))
	case config.Memcached:
		m, err := memcachestore.Open(memcachestore.Config{Addrs: c.Servers, Prefix: c.Prefix})
		if err != nil {
			return o, fmt.Errorf("store: %w", err)
		}
		o.Store, o.close = m, func() { _ = m.Close() }
	default:
		m, err := memstore.Open(memstore.Config{Bytes: c.Bytes, Snapshot: c.Snapshot})
		if err != nil {
			return o, fmt.Errorf("store: %w", err)
		}
		o.Store = m
		if c.Snapshot != "" {
			o.close = func() {
				if err := m.Save(); err != nil {
					s.log.Error("the store cannot be saved", "error", err)
				}
			}
		}
	}
	return o, nil
}

// lateRedis is a Redis that may not be there yet when the service starts. Until it is, the rules' fail modes answer, as
// when it goes away later.
type lateRedis struct {
	cfg  redisstore.Config
	log  *slog.Logger
	live atomic.Pointer[redisstore.Store]
}

var _ sluice.Remote = (*lateRedis)(nil)

// connect tells whether there is a connection. The error is one that will not go away.
func (r *lateRedis) connect() (bool, error) {
	if r.live.Load() != nil {
		return true, nil
	}
	store, err := redisstore.Open(r.cfg)
	switch {
	case errors.Is(err, sluice.ErrUnavailable):
		r.log.Error("the store does not answer yet: rules' on_failure does", "error", err)
		return false, nil
	case err != nil:
		return false, err
	}
	r.live.Store(store)
	return true, nil
}

const (
	retryFirst = 250 * time.Millisecond
	retryMost  = 5 * time.Second
)

// run connects, and counts this process among those that share the store.
func (r *lateRedis) run(ctx context.Context) {
	for wait := retryFirst; ; wait = min(2*wait, retryMost) {
		if there, _ := r.connect(); there {
			break
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
	_ = r.live.Load().Heartbeat(ctx)
}

func (r *lateRedis) close() {
	if store := r.live.Load(); store != nil {
		store.Close()
	}
}

func (r *lateRedis) nodes() int {
	if store := r.live.Load(); store != nil {
		return store.Nodes()
	}
	return 1
}

// Apply asks Redis if it is there.
func (r *lateRedis) Apply(ctx context.Context, takes []sluice.Take, out []sluice.Decision) error {
	store := r.live.Load()
	if store == nil {
		return fmt.Errorf("%w: it has not answered yet", sluice.ErrUnavailable)
	}
	return store.Apply(ctx, takes, out)
}

// Servers is how many servers there are.
func (r *lateRedis) Servers() int {
	if store := r.live.Load(); store != nil {
		return store.Servers()
	}
	return 1
}

// Server is the number of the one that a take's key lives on.
func (r *lateRedis) Server(t *sluice.Take) int {
	if store := r.live.Load(); store != nil {
		return store.Server(t)
	}
	return 0
}
