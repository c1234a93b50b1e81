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

// refund lowers a count, not below 0, and does nothing where there is none. It is sent whole: by its digest it might have to
// be sent again, and then later than the commands behind it.
const refund = `
local v = redis.call('GET', KEYS[1])
if not v then return 0 end
local n = math.min(tonumber(v), tonumber(ARGV[1]))
return redis.call('DECRBY', KEYS[1], string.format('%.0f', math.max(0, n)))`

// Servers is 1: what a Cluster's nodes do is not told apart.
func (*envoyKeys) Shards() int { return 1 }

// Server is the only one.
func (*envoyKeys) Shard(*sluice.Take) int { return 0 }

// Ping reports whether the server can be called.
func (s *envoyKeys) Ping(ctx context.Context) error {
	return s.client.Do(ctx, s.client.B().Ping().Build()).Error()
}

// Apply counts the takes. Their commands are sent together, in the order of the takes.
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
