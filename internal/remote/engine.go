package remote

import (
	"context"
	"time"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
)

// Store is the store of an engine.
type Store interface {
	Apply(ctx context.Context, ops []group.Op, out []group.Answer) error
	// Shards returns the number of shards, which fail independently; 0 means that the store is in this process.
	Shards() int
	// Shard returns the index of the shard that stores an op's key.
	Shard(op *group.Op) int
}

// Arrivals is implemented by stores that can distinguish a slow server from a busy process; see sluice.Arrivals.
type Arrivals interface {
	Patience(timeout time.Duration) (left time.Duration, own bool)
}

// Events are callbacks about the store. Any may be nil.
type Events struct {
	OnStoreError       func(ctx context.Context, err error)
	OnForgiven         func(ctx context.Context, op *group.Op, n int64)
	OnShardUnavailable func(ctx context.Context, shard int, err error)
	OnShardRecovered   func(ctx context.Context, shard int)
}

// Config configures an engine.
type Config struct {
	Store     Store
	Timeout   time.Duration // of one store call; 0 means DefaultTimeout
	Instances func() int    // returns the number of instances sharing the limits, or 0 while that is unknown; nil means one instance
	Events    Events
	// NoExtrapolation disables the extrapolation of other instances' usage in estimates. It is for tests.
	NoExtrapolation bool
}

// DefaultTimeout is the default timeout of one store call. It is below the 20 ms that Envoy waits.
const DefaultTimeout = 10 * time.Millisecond

// Engine decides takes for a limiter, with or without calling the store.
type Engine struct {
	Config
	arrivals Arrivals // Store, if it implements Arrivals

	breakers    []breaker // one per shard; empty if the store is in this process
	denyCache   denyCache
	unreported  unreported
	fallback    fallback
	leases      leases
	estimates   estimates
	settlements settlements
	work        work
}

// New returns an engine. For a store in this process it uses only fail modes and settlements.
func New(c Config) *Engine {
	if c.Timeout <= 0 {
		c.Timeout = DefaultTimeout
	}
	en := &Engine{Config: c, breakers: make([]breaker, c.Store.Shards())}
	en.work.closing = make(chan struct{})
	en.arrivals, _ = c.Store.(Arrivals)
	if en.IsRemote() {
		en.denyCache.init() // here, so that the first decision is not slowed down
		en.leases.keys, en.estimates.keys = newKeyMap[lease](), newKeyMap[estimate]()
		en.estimates.startedAt = time.Now()
	}
	return en
}

// Shard returns the index of the shard that stores the op's key.
func (en *Engine) Shard(op *group.Op) int {
	if !en.IsRemote() {
		return 0
	}
	return en.Store.Shard(op)
}

// LocalPermit acquires, renews or releases a permit in this instance's local count, which local fallback uses. It
// returns the permit's local receipt, or 0.
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

// Forget drops the local state of a key, so that the next take calls the store. Other instances may still use their
// leases, and their deny caches for up to 1 s.
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

// ForgetRule is like Forget for all keys of a rule.
func (en *Engine) ForgetRule(r *group.Rule) {
	if !en.IsRemote() {
		return
	}
	en.leases.dropRule(r)
	en.estimates.dropRule(r)
	en.denyCache.invalidateRule(r)
	en.fallback.open().ResetRule(r.ID)
}

// Block denies a key in this instance for d, also while the store is unavailable; 0 lifts the block. Local usage of the
// key is kept, because a block is no reset.
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

// Close returns leases, reports unreported usage, including usage admitted while the store was unavailable, sends
// pending settlements, and waits for background work. Ops after Close call the store.
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
