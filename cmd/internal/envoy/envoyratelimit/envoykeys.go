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

// envoyKeys counts in the reference's own keys, by the reference's own commands, so that both can count together on one
// Redis while one takes the other's place. It has the reference's weaknesses too: windows are by this process' clock, a
// count and its expiry are two commands, and different descriptors may share a key.
//
// It serves the counters of this package, whose takes are never refused.
type envoyKeys struct {
	client rueidis.Client
	prefix string
	jitter int64 // seconds
	now    func() time.Time
}

var _ sluice.RemoteStore = (*envoyKeys)(nil)

// refund lowers a count, not below 0, and does nothing where there is none.
var refund = rueidis.NewLuaScript(`
local v = redis.call('GET', KEYS[1])
if not v then return 0 end
local n = math.min(tonumber(v), tonumber(ARGV[1]))
return redis.call('DECRBY', KEYS[1], string.format('%.0f', math.max(0, n)))`)

// Servers is 1: what a Cluster's nodes do is not told apart.
func (*envoyKeys) Shards() int { return 1 }

// Server is the only one.
func (*envoyKeys) Shard(*sluice.Take) int { return 0 }

// Ping reports whether the server can be called.
func (s *envoyKeys) Ping(ctx context.Context) error {
	return s.client.Do(ctx, s.client.B().Ping().Build()).Error()
}

// Apply counts the takes.
func (s *envoyKeys) Apply(ctx context.Context, takes []sluice.Take, out []sluice.Decision) error {
	now := s.now()
	commands := make(rueidis.Commands, 0, 2*len(takes))
	for i := range takes {
		t := &takes[i]
		if t.Cost < 0 {
			continue
		}
		key, seconds := s.key(t, now), int64(t.Rule.Limit.Window/time.Second)
		if s.jitter > 0 {
			seconds += rand.Int64N(s.jitter)
		}
		commands = append(commands,
			s.client.B().Incrby().Key(key).Increment(t.Cost).Build(),
			s.client.B().Expire().Key(key).Seconds(seconds).Build())
	}
	var results []rueidis.RedisResult
	if len(commands) > 0 {
		results = s.client.DoMulti(ctx, commands...)
	}
	next := 0
	for i := range takes {
		t := &takes[i]
		var (
			n   int64
			err error
		)
		if t.Cost < 0 {
			n, err = refund.Exec(ctx, s.client, []string{s.key(t, now)}, []string{strconv.FormatInt(-t.Cost, 10)}).AsInt64()
		} else {
			n, err = results[next].AsInt64()
			if failed := results[next+1].Error(); err == nil && failed != nil {
				err = failed
			}
			next += 2
		}
		if err != nil {
			return fmt.Errorf("redis: %w: %w", sluice.ErrUnavailable, err)
		}
		out[i] = counterDecision(t, n, now)
	}
	return nil
}

// counterDecision tells a count as what is left of the most that is counted, which is more than other stores count.
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
