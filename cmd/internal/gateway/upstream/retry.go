package upstream

import "sync/atomic"

// A retryBudget keeps retries few: a fifth of the requests, and ten at once. When everything fails, retries would only be
// more of what fails.
type retryBudget struct{ tokens atomic.Int64 } // in retryCost-ths of a retry

const (
	retryCost      = 5 // requests that pay for one retry
	maxRetryTokens = 10 * retryCost
)

func (b *retryBudget) fill() { b.tokens.Store(maxRetryTokens) }

// onRequest is called for every request, and adds a token.
func (b *retryBudget) onRequest() {
	// A full budget is the rule, and reading it disturbs nobody. That two may pass the check at once does no harm: spend
	// brings it back.
	if b.tokens.Load() < maxRetryTokens {
		b.tokens.Add(1)
	}
}

// spend takes a retry, if there is one.
func (b *retryBudget) spend() bool {
	for {
		left := b.tokens.Load()
		if left < retryCost {
			return false
		}
		if b.tokens.CompareAndSwap(left, left-retryCost) {
			return true
		}
	}
}
