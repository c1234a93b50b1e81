package remote

import (
	"context"
	"time"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
)

// Store is what an engine asks.
type Store interface {
	Apply(ctx context.Context, ops []group.Op, out []group.Answer) error
	// Shards is how many servers there are that can fail by themselves; 0: the store is in this process.
	Shards() int
	// Shard is the number of the one that an op's key lives on.
	Shard(op *group.Op) int
}

// Arrivals is implemented by stores that can tell a server that is late from a process that is; see sluice.Arrivals.
type Arrivals interface {
	Patience(timeout time.Duration) (left time.Duration, own bool)
}

// Events are told what becomes of servers. Any may be nil.
type Events struct {
	OnStoreError       func(ctx context.Context, err error)
	OnForgiven         func(ctx context.Context, op *group.Op, n int64)
	OnShardUnavailable func(ctx context.Context, shard int, err error)
	OnShardRecovered   func(ctx context.Context, shard int)
}

// Config is how an engine is made.
type Config struct {
	Store     Store
	Timeout   time.Duration // of a call to the store; 0: DefaultTimeout
	Instances func() int    // how many processes share the limits; nil: only this one; a result of 0 is not known yet
	Events    Events
	// NoExtrapolation has estimates not reckon with what others will spend. It is for tests.
	NoExtrapolation bool
}

// DefaultTimeout is how long a store may take for a decision. It is below the 20 ms that Envoy waits.
const DefaultTimeout = 10 * time.Millisecond

// Engine stands between a limiter and its store.
type Engine struct {
	Config
	arrivals Arrivals // the store again, if it is one

	breakers    []breaker // of each shard; none if the store is in this process
	denyCache   denyCache
	unreported  unreported
	fallback    fallback
	leases      leases
	estimates   estimates
	settlements settlements
	work        work
}

// New returns an engine. Of a store in this process it uses no more than the fail modes and settlements.
func New(c Config) *Engine {
	if c.Timeout <= 0 {
		c.Timeout = DefaultTimeout
	}
	en := &Engine{Config: c, breakers: make([]breaker, c.Store.Shards())}
	en.work.closing = make(chan struct{})
	en.arrivals, _ = c.Store.(Arrivals)
	if en.IsRemote() {
		en.denyCache.init() // now, and not in the first decision's time
		en.leases.keys, en.estimates.keys = newKeyMap[lease](), newKeyMap[estimate]()
		en.estimates.startedAt = time.Now()
	}
	return en
}

// Shard is the number of the server that the op's key lives on.
func (en *Engine) Shard(op *group.Op) int {
	if !en.IsRemote() {
		return 0
	}
	return en.Store.Shard(op)
}

// LocalPermit takes, renews or gives back a permit in this process' own count, which goes on while the store cannot answer. It
// returns the permit's receipt there, or 0.
func (en *Engine) LocalPermit(t *group.Op, receipt, cost int64) int64 {
	op := t.By.Op(en.shareOf(t.Params), t.Key, t.HashTag, cost)
	op.At = receipt
	var answer [1]step.Answer
	en.fallback.open().Apply(time.Now().UnixMicro(), []group.Op{op}, answer[:])
	if cost < 0 || !answer[0].Allowed {
		return 0
	}
	return answer[0].At
}

// Forget has this process ask the store about a key again. Other processes may still spend what they have leased of it,
// and remember a denial for a second.
func (en *Engine) Forget(r *group.Rule, p *step.Params, key string) {
	if !en.IsRemote() {
		return
	}
	en.leases.drop(r, key)
	en.estimates.drop(r, key)
	en.denyCache.invalidate(r, key)
	local := en.fallback.open()
	local.Reset(local.Hash(r.ID, key), en.shareOf(p), time.Now().UnixMicro())
}

// ForgetRule is Forget for all keys of a rule.
func (en *Engine) ForgetRule(r *group.Rule) {
	if !en.IsRemote() {
		return
	}
	en.leases.dropRule(r)
	en.estimates.dropRule(r)
	en.denyCache.invalidateRule(r)
	en.fallback.open().ResetRule(r.ID)
}

// Block denies a key in this process for d, also while the store is unavailable; 0 lifts the block. Local usage of the key stays
// counted: a block is no reset.
func (en *Engine) Block(r *group.Rule, key string, d time.Duration) {
	if !en.IsRemote() {
		return
	}
	en.leases.drop(r, key)
	en.estimates.drop(r, key)
	en.denyCache.invalidate(r, key)
	now, local := time.Now().UnixMicro(), en.fallback.open()
	local.Block(local.Hash(r.ID, key), now, now+d.Microseconds())
}

// Close gives back what is leased, reports what was spent and not reported, also what was admitted while the store was
// unavailable, sends the settlements that were kept, and waits for what was begun in the background. Ops after Close are
// asked of the store.
func (en *Engine) Close(ctx context.Context) error {
	en.work.close() // refills end within the timeout
	if !en.IsRemote() {
		return nil
	}
	en.returnLeases(ctx, time.Now().Add(leaseIdleTimeout))
	en.flushEstimates(ctx)
	en.reportAll(ctx)
	en.resendAll(ctx)
	return ctx.Err()
}
