package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/step"
)

// Reset forgets what was spent of a bucket, and lifts a block.
func (s *Store) Reset(ctx context.Context, b sluice.Bucket) error {
	of, err := nameOf(&b)
	if err != nil {
		return err
	}
	state, block := string(s.names.state(nil, &of, b.Effective().Params())), string(s.names.block(nil, &of))
	return unavailable(s.client.Do(ctx, s.client.B().Del().Key(state, block).Build()).Error())
}

// Block denies a bucket's takes for d, whatever was spent of it; 0 lifts the block.
func (s *Store) Block(ctx context.Context, b sluice.Bucket, d time.Duration) error {
	of, err := nameOf(&b)
	if err != nil {
		return err
	}
	block := string(s.names.block(nil, &of))
	if d.Microseconds() <= 0 {
		return unavailable(s.client.Do(ctx, s.client.B().Del().Key(block).Build()).Error())
	}
	now, err := s.micros(ctx)
	if err != nil {
		return err
	}
	till := min(now+d.Microseconds(), step.MaxTime)
	command := s.client.B().Set().Key(block).Value(strconv.FormatInt(till, 10)).
		PxMilliseconds(d.Milliseconds() + 1 + s.margin).Build()
	return unavailable(s.client.Do(ctx, command).Error())
}

func nameOf(b *sluice.Bucket) (name, error) {
	if err := b.Check(); err != nil {
		return name{}, fmt.Errorf("redisstore: %w", err)
	}
	return name{rule: b.Rule.Identity(), key: b.Key, slot: b.Slot}, nil
}

// micros asks the server for its time.
func (s *Store) micros(ctx context.Context) (int64, error) {
	if s.now != nil {
		return s.now().UnixMicro(), nil
	}
	parts, err := s.client.Do(ctx, s.client.B().Time().Build()).AsIntSlice()
	if err != nil {
		return 0, unavailable(err)
	}
	if len(parts) != 2 {
		return 0, fmt.Errorf("redisstore: TIME has %d parts", len(parts))
	}
	return parts[0]*1_000_000 + parts[1], nil
}
