// Package sluice is a rate limiter for one process or many.
//
//	limiter, err := sluice.New(memstore.New(), "api", sluice.PerMinute(100))
//	…
//	d, err := limiter.Allow(ctx, userID)
//	if err == nil && !d.Allowed {
//		fmt.Println("try again in", d.RetryAfter)
//	}
//
// A [Limit] is a count per window and an [Algorithm]. A [Rule] is a named limit with an [Accuracy] and a [FailMode]. A
// [Limiter] applies rules to keys and keeps one bucket per rule name and key in a [Store]: in memory (package memstore) or
// on a server.
//
// PerMinute(100) is a token bucket of 100 tokens that is refilled continuously: after an idle period a client may use
// 100 at once, and so up to 200 in the first minute. docs/algorithms.md compares it with the other algorithms.
//
// A denial is not an error. Nor is an unavailable store: the rule's [FailMode] decides, [Decision.Source] records it,
// and [Events.OnStoreError] receives the error. Allow and Decide return an error only if the call is invalid
// ([ErrInvalid], nothing is charged) or ctx is done (the takes may have been charged). Reset, Block, ListBuckets and
// Settle have no fail mode: their errors wrap [ErrUnavailable] while the store is unavailable.
//
// Tests can use the clock of testing/synctest: see examples/virtual-clock.
package sluice
