package envoyratelimit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluiceproject/sluice"
)

// envoyKeys counts in the reference's keys with the reference's commands, so that both can share one Redis during a
// migration. It has the weaknesses of the reference too: windows follow the clock of this process, a count and its expiry
// are two commands, and different descriptors may share a key.
//
// It is used for the counters of this package, whose takes are never denied.
type envoyKeys struct {
	client rueidis.Client
	prefix string
	jitter int64 // seconds
	now    func() time.Time
}

var _ sluice.RemoteStore = (*envoyKeys)(nil)

// refund reduces a count, not below 0, and does nothing if there is no count. It is sent by EVAL, because EVALSHA might have
// to be repeated, after the commands that follow it.
const refund = `
local v = redis.call('GET', KEYS[1])
if not v then return 0 end
local n = math.min(tonumber(v), tonumber(ARGV[1]))
return redis.call('DECRBY', KEYS[1], string.format('%.0f', math.max(0, n)))`

// Shards returns 1: nodes of a Cluster are not distinguished.
func (*envoyKeys) Shards() int { return 1 }

// Shard returns the only shard.
func (*envoyKeys) Shard(*sluice.Take) int { return 0 }

// Ping returns an error if the server is unavailable.
func (s *envoyKeys) Ping(ctx context.Context) error {
	return s.client.Do(ctx, s.client.B().Ping().Build()).Error()
}

// Apply counts the takes. Their commands are pipelined in the order of the takes.
func (s *envoyKeys) Apply(ctx context.Context, takes []sluice.Take, out []sluice.Decision) error {
	now := s.now()
	commands := make(rueidis.Commands, 0, 2*len(takes))
	for i := range takes {
		t := &takes[i]
		key, seconds := s.key(t, now), int64(t.Rule.Limit.Window/time.Second)
		if t.Cost < 0 {
			commands = append(commands, s.client.B().Eval().Script(refund).Numkeys(1).Key(key).Arg(strconv.FormatInt(-t.Cost, 10)).Build())
			continue
		}
		if s.jitter > 0 {
			seconds += rand.Int64N(s.jitter)
		}
		commands = append(commands,
			s.client.B().Incrby().Key(key).Increment(t.Cost).Build(),
			s.client.B().Expire().Key(key).Seconds(seconds).Build())
	}
	results := s.client.DoMulti(ctx, commands...)
	for i := range takes {
		t := &takes[i]
		n, err := results[0].AsInt64()
		results = results[1:]
		if t.Cost >= 0 {
			if failed := results[0].Error(); err == nil {
				err = failed
			}
			results = results[1:]
		}
		if err != nil {
			return fmt.Errorf("redis: %w: %w", sluice.ErrUnavailable, err)
		}
		out[i] = counterDecision(t, n, now)
	}
	return nil
}

// counterDecision returns a decision for the count n. Its Limit is sluice.MaxCost, which is more than that of other stores,
// and Remaining is the rest.
func counterDecision(t *sluice.Take, n int64, now time.Time) sluice.Decision {
	length := t.Rule.Limit.Window
	return sluice.Decision{
		Allowed: n <= sluice.MaxCost, Limit: sluice.MaxCost, Remaining: sluice.MaxCost - min(max(0, n), sluice.MaxCost), Granted: t.Cost,
		Receipt: now.UnixMicro(), ResetAfter: length - time.Duration(now.UnixNano()%int64(length)),
	}
}

func (s *envoyKeys) key(t *sluice.Take, now time.Time) string {
	seconds := int64(t.Rule.Limit.Window / time.Second)
	return s.prefix + t.Key + strconv.FormatInt(now.Unix()/seconds*seconds, 10)
}
