package serve

import (
	"context"
	"errors"
	"testing"

	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
)

// The history is bounded and newest first, and includes a reason for shards that replied too late.
func TestBreakerHistory(t *testing.T) {
	b := &breakers{server: func(shard int) string { return "s" }}
	e, ctx := b.events(), context.Background()
	for range maxBreakerEvents {
		e.OnShardUnavailable(ctx, 1, errors.New("refused"))
		e.OnShardRecovered(ctx, 1)
	}
	e.OnShardUnavailable(ctx, 2, nil)
	out := adminmsg.StoreStatus{Up: true, Servers: []adminmsg.ServerStatus{{Shard: 1, Up: true}, {Shard: 2, Up: true}}}
	b.describe(&out)
	if len(out.History) != maxBreakerEvents || out.History[0].Error != "replies exceed the store timeout" || out.History[1].Breaker != "closed" || out.History[2].Error != "refused" {
		t.Errorf("the history is %+v", out.History)
	}
	if s := out.Servers; !s[0].Up || s[0].Breaker != "closed" || s[1].Up || s[1].Breaker != "open" || s[1].Since == nil || s[1].Error == "" {
		t.Errorf("the shards are %+v", s)
	}
}
