package serve

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
)

// maxBreakerEvents is the number of circuit breaker events in the history of the status.
const maxBreakerEvents = 32

// breakers is the state of the circuit breakers of a store's shards, and their history. It is safe for concurrent use.
type breakers struct {
	server func(shard int) string // address of a shard's server; nil: the store has no servers

	mu      sync.Mutex                    // guards the fields below
	open    map[int]adminmsg.BreakerEvent // by shard: when and why it opened
	history []adminmsg.BreakerEvent       // oldest first
}

// events returns the limiter events that update b.
func (b *breakers) events() sluice.Events {
	return sluice.Events{
		OnShardUnavailable: func(_ context.Context, shard int, err error) { b.record(shard, "open", breakerError(err)) },
		OnShardRecovered:   func(_ context.Context, shard int) { b.record(shard, "closed", "") },
	}
}

// breakerError returns the reason why a breaker opened. Err is nil if the shard replied, but too late.
func breakerError(err error) string {
	if err == nil {
		return "replies exceed the store timeout"
	}
	return err.Error()
}

func (b *breakers) record(shard int, state, text string) {
	e := adminmsg.BreakerEvent{Time: time.Now().UTC(), Shard: shard, Breaker: state, Error: text}
	if b.server != nil {
		e.Server = b.server(shard)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.history) == maxBreakerEvents {
		b.history = slices.Delete(b.history, 0, 1)
	}
	b.history = append(b.history, e)
	if state == "closed" {
		delete(b.open, shard)
		return
	}
	if b.open == nil {
		b.open = make(map[int]adminmsg.BreakerEvent)
	}
	b.open[shard] = e
}

// describe adds the breaker states of a store's servers and their history, newest first, to a status.
func (b *breakers) describe(out *adminmsg.StoreStatus) {
	b.mu.Lock()
	defer b.mu.Unlock()
	out.History = slices.Clone(b.history)
	slices.Reverse(out.History)
	for i := range out.Servers {
		s := &out.Servers[i]
		s.Breaker = "closed"
		if e, open := b.open[s.Shard]; open {
			s.Up, s.Breaker, s.Since, s.Error = false, "open", &e.Time, e.Error
		}
	}
}
