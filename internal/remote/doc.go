// Package remote decides takes for a limiter with a remote store. It applies timeouts and circuit breakers to store
// calls, caches denials, decides from leases and local estimates, and falls back to the rules' fail modes.
//
//	engine.go          Engine: the interface for limiters
//	client.go          calls to the store, with timeouts and circuit breakers (breaker.go)
//	decide.go          takes that leases or estimates may decide
//	denycache.go       cache of denials, for up to 1 s
//	unreported.go      usage admitted without the store, which is charged there later
//	fallback.go        fail modes, and this instance's share of the limits (parts.go)
//	lease.go           leases, those for the next window (lease_prefetch.go), and their return (lease_return.go)
//	estimate.go        local estimates, and their sync with the store (sync.go)
//	settlements.go     settlements, retried until the store replies; settle_local.go: those of takes it never received
//	keymap.go          keys with a lease or an estimate
//	work.go            goroutines and timers, which Close waits for
//
// # Locks
//
// Locks are acquired in this order:
//
//	settlement → pending settlements → start of the janitor or of the sync → key map shard → lease or estimate → permit →
//	permit renewal → leaf (work, breaker, deny cache shard, unreported shard) → table segments, ascending
//
// No lock is held during a store call, except that of a settlement, which one caller at a time sends.
package remote
