package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/private"
	"github.com/sluiceproject/sluice/internal/step"
)

// Reset removes the usage of a bucket and lifts its block.
func (s *Store) Reset(ctx context.Context, b sluice.Bucket) error {
	of, err := s.nameOf(&b)
	if err != nil {
		return err
	}
	state, block := string(s.names.state(nil, &of, private.ParamsOf(b.EffectiveLimit()))), string(s.names.block(nil, &of))
	err = s.do(ctx, "DEL", state, block)
	if err == nil { // the hint of a bucket that was not reset is still valid
		s.hints.forget(state)
	}
	return err
}

// Block denies all takes of a bucket for d, regardless of its usage; 0 lifts the block.
func (s *Store) Block(ctx context.Context, b sluice.Bucket, d time.Duration) error {
	of, err := s.nameOf(&b)
	if err != nil {
		return err
	}
	block := string(s.names.block(nil, &of))
	if d.Microseconds() <= 0 {
		return s.do(ctx, "DEL", block)
	}
	now, err := s.micros(ctx)
	if err != nil {
		return err
	}
	till := min(now+d.Microseconds(), step.MaxTime)
	ttl := strconv.FormatInt(d.Milliseconds()+1+s.extraTTL, 10)
	return s.do(ctx, "SET", block, strconv.FormatInt(till, 10), "PX", ttl)
}

// Blocked returns the remaining time of the bucket's block, or 0 if it is not blocked.
func (s *Store) Blocked(ctx context.Context, b sluice.Bucket) (time.Duration, error) {
	of, err := s.nameOf(&b)
	if err != nil {
		return 0, err
	}
	reply, err := s.ask(ctx, "GET", string(s.names.block(nil, &of)))
	if err != nil || reply.IsNil() {
		return 0, err
	}
	until, err := reply.AsInt64()
	if err != nil {
		return 0, fmt.Errorf("redisstore: %w: blocked: %w", sluice.ErrUnavailable, err)
	}
	now, err := s.micros(ctx)
	if err != nil {
		return 0, err
	}
	return time.Duration(max(0, until-now)) * time.Microsecond, nil
}

func (s *Store) nameOf(b *sluice.Bucket) (name, error) {
	if err := private.CheckBucket(b); err != nil {
		return name{}, fmt.Errorf("redisstore: %w", err)
	}
	if _, err := s.connected(); err != nil { // the names of keys depend on whether the servers are a Cluster
		return name{}, unavailable(err)
	}
	return name{rule: private.RuleOf(b.Rule).ID, key: b.Key, slot: b.HashTag}, nil
}

// do sends a command and ignores its reply. The command may be sent twice.
func (s *Store) do(ctx context.Context, command ...string) error {
	_, err := s.ask(ctx, command...)
	return err
}

// ask sends a command and returns its reply. The command may be sent twice.
func (s *Store) ask(ctx context.Context, command ...string) (value, error) {
	reply, err := again(ctx, s, func(c Commander) (any, error) { return c.Do(ctx, command...) })
	if err != nil {
		return value{}, unavailable(err)
	}
	return valueOf(reply)
}

// micros returns the store clock in microseconds.
func (s *Store) micros(ctx context.Context) (int64, error) {
	if s.now != nil {
		return s.now().UnixMicro(), nil
	}
	return s.serverMicros(ctx)
}

// serverMicros returns the server's clock in microseconds.
func (s *Store) serverMicros(ctx context.Context) (int64, error) {
	reply, err := s.ask(ctx, "TIME")
	if err != nil {
		return 0, err
	}
	parts, err := reply.AsIntSlice()
	if err != nil || len(parts) != 2 {
		return 0, fmt.Errorf("redisstore: %w: TIME: the reply has %d parts: %w", sluice.ErrUnavailable, len(parts), err)
	}
	return parts[0]*1_000_000 + parts[1], nil
}
