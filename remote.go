package sluice

import (
	"time"

	"github.com/sluiceproject/sluice/internal/remote"
)

// RemoteStore is implemented by stores that ask servers. A [Limiter] gives each of their decisions a timeout, and stops
// asking a server that does not answer; see [WithStoreTimeout].
type RemoteStore interface {
	Store
	// Shards is how many servers there are that can fail by themselves.
	Shards() int
	// Shard is the number of the one that a take's key lives on.
	Shard(t *Take) int
}

// Arrivals is implemented by a [RemoteStore] that can tell a server that is late from a process that is: one that has not
// written its request yet, or not read the reply.
type Arrivals interface {
	RemoteStore
	// Patience is after how much time at least a server could have left a request of this store unanswered for the
	// timeout, from when it was written. It is 0 if one has, and nothing has come of the reply. Meanwhile own tells
	// that no server is waited for, but this process.
	Patience(timeout time.Duration) (left time.Duration, own bool)
}

// DefaultStoreTimeout is how long a [RemoteStore] may take for a decision. It is below the 20 ms that Envoy waits.
const DefaultStoreTimeout = 10 * time.Millisecond

// WithStoreTimeout bounds how long a [RemoteStore] may take for a decision. When it is spent the rules' fail modes answer.
// The default is [DefaultStoreTimeout].
//
// It is the servers' time. With a store that has [Arrivals] a reply counts that has come when its time is up, though
// this process was too busy to read it; and a request that was written late has as much time from then. In all a
// decision takes at most ten times the timeout.
//
// A server that fails too often, or is too slow, is not asked for a while: a quarter of a second at first and up to
// one. Meanwhile the fail modes answer at once.
func WithStoreTimeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// WithInstances tells how many processes share the limits. While the store cannot answer, a rule with FailLocal admits an
// equal part of its limit in each, so that together they admit at most limit + (processes − 1). The default is 1: each
// process admits what the store had left when it was last asked.
//
// A function that returns 0 has not read the number yet. Until it has, a process admits 1 for each key and window, and
// nothing of a key that was used in its window.
func WithInstances(f func() int) Option { return func(o *options) { o.instances = f } }

// MaxStaleness is how long it takes at most until a process knows what another has spent under a rule with [AccuracyEventual]:
// until the one has told the store and the other has asked it, each within the timeout; see [WithStoreTimeout].
// All processes together admit at most the limit and what is offered in that time.
func MaxStaleness(timeout time.Duration) time.Duration { return remote.Staleness(timeout) }
