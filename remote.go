package sluice

import (
	"time"

	"github.com/sluiceproject/sluice/internal/remote"
)

// RemoteStore is a [Store] whose state lives in other processes. A [Limiter] applies a timeout and a circuit breaker
// per shard to it; see [WithStoreTimeout].
type RemoteStore interface {
	Store
	// Shards returns the number of shards, the parts of the store that fail independently.
	Shards() int
	// Shard returns the index of the shard that stores the take's bucket, from 0 to Shards()-1.
	Shard(t *Take) int
}

// Arrivals is implemented by a [RemoteStore] that can distinguish a slow server from a busy process, which has not yet
// written its request or not yet read the reply.
type Arrivals interface {
	RemoteStore
	// Patience returns the minimum time until a server could have left a written request without a reply for timeout.
	// It returns 0 if a server already has, and no part of the reply has arrived. own is true while the store waits
	// only for this process and not for a server.
	Patience(timeout time.Duration) (left time.Duration, own bool)
}

// DefaultStoreTimeout is the default timeout of one call to a [RemoteStore]. It is below the 20 ms that Envoy waits.
const DefaultStoreTimeout = 10 * time.Millisecond

// WithStoreTimeout sets the timeout of one call to a [RemoteStore]; the default is [DefaultStoreTimeout]. When it
// expires, each rule's [FailMode] decides. A circuit breaker per shard stops calls to a shard that fails or times out
// too often; it stays open for 250 ms to 1 s (± 50 % jitter), and the fail modes decide at once.
//
// The timeout bounds the servers' time. If the store implements [Arrivals], a reply that has arrived in time is used
// even if this process was too busy to read it, and a request that was written late has the full timeout from then on.
// In total a decision takes at most 10 × timeout.
func WithStoreTimeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// WithInstances sets the function that returns the number n of instances sharing the limits; the default is 1. With
// [FailLocal] each instance admits ⌈limit/n⌉ while the store is unavailable, in total at most limit + n − 1. With n = 1
// each instance admits the remaining quota of its last store decision.
//
// If f returns 0, the number is not known yet. Until it is, an instance admits 1 per key and window, and nothing for a
// key that was used in its current window.
func WithInstances(f func() int) Option { return func(o *options) { o.instances = f } }

// MaxStaleness returns the maximum age of other instances' usage in a local estimate: 2 × (115 ms + timeout), which is
// two sync intervals with jitter and two store calls. With [AccuracyEventual] all instances together admit at most
// limit + offered rate × MaxStaleness.
func MaxStaleness(timeout time.Duration) time.Duration { return remote.Staleness(timeout) }
