// Package remote is what a limiter does when its store asks servers: it bounds how long they may take, stops asking those
// that do not answer, remembers denials, spends leases and estimates without asking, and has the rules' fail modes decide
// when nobody answers.
//
//	engine.go          Engine: what a limiter asks
//	client.go          calls to the store, within the timeout and past the breakers (breaker.go)
//	decide.go          takes that leases or estimates may answer
//	denycache.go       denials, for up to a second
//	unreported.go      what was admitted without the store, and is charged there later
//	fallback.go        fail modes, and this process' share of the limits (parts.go)
//	lease.go           leases, those for the next window (lease_prefetch.go), and their return (lease_return.go)
//	estimate.go        estimates, and their exchange with the store (sync.go)
//	settlements.go     settlements, sent until the store answers; settle_local.go those of takes that it never saw
//	keymap.go          the keys that leases and estimates are of
//	work.go            goroutines and timers, which Close waits for
//
// # Locks
//
// Each is taken only before those to its right:
//
//	settlement → kept settlements → start of the janitor or of the sync → key map shard → lease or estimate → permit →
//	permit renewal → leaf (work, breaker, deny cache shard, unreported shard) → table segments, ascending
//
// No lock is held across a call to the store, but for that of a settlement, which is sent by one caller at a time.
package remote
