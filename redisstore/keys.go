package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/step"
)

// Reset forgets what a key has spent, and lifts a block. In a Cluster it finds only buckets whose takes have no Slot.
func (s *Store) Reset(ctx context.Context, r *sluice.Rule, key string) error {
	of := name{rule: r.Identity(), key: key}
	state, block := string(s.names.state(nil, &of, r.Limit.Params())), string(s.names.block(nil, &of))
	defer s.hinter.forget(state)
	return unavailable(s.client.Do(ctx, s.client.B().Del().Key(state, block).Build()).Error())
}

// Block denies a key for d, whatever it has spent; 0 lifts the block. In a Cluster it finds only buckets whose takes
// have no Slot.
func (s *Store) Block(ctx context.Context, r *sluice.Rule, key string, d time.Duration) error {
	of := name{rule: r.Identity(), key: key}
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
