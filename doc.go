// Package sluice limits how much of something may happen in how long.
//
//	limiter, err := sluice.New(memstore.New(), "api", sluice.PerMinute(100))
//	…
//	d, err := limiter.Allow(ctx, userID)
//	if err == nil && !d.Allowed {
//		fmt.Println("try again in", d.RetryAfter)
//	}
//
// A [Limit] is the numbers: so much per window, and by which [Algorithm]. A [Rule] gives a limit a name and says what
// happens when things go wrong. A [Limiter] applies rules to keys through a [Store], which keeps the counts: package
// memstore in this process, others in servers that many processes share. A bucket is named by the rule's name and the
// key together.
//
// PerMinute(100) is a token bucket that holds 100 and is refilled continuously: a caller who has been idle may spend
// 100 at once, and so up to 200 in the first minute. If that is not what you mean, choose another algorithm, or a
// smaller burst: docs/algorithms.md compares them.
//
// A denial is not an error, nor is a store that cannot be reached: then the rule's [FailMode] decides, [Decision.Source]
// says so, and [Events.OnStoreError] gets the error. An error of Allow or Decide wraps [ErrInvalid] if the call makes no
// sense, and nothing was counted; else ctx has ended, and the takes may have been counted. Reset, Block, ListBuckets and
// Settle have no fail mode: their errors wrap [ErrUnavailable] while the store is unavailable.
//
// In tests, memstore follows the virtual clock of testing/synctest: see examples/virtual-clock.
package sluice
