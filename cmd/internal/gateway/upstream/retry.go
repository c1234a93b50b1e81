package upstream

import "sync/atomic"

// A budget keeps retries few: a fifth of the requests, and ten at once. When everything fails, retries would only be
// more of what fails.
type budget struct{ left atomic.Int64 } // in retryCost-ths of a retry

const (
	retryCost = 5 // requests that pay for one retry
	retryMost = 10 * retryCost
)

func (b *budget) fill() { b.left.Store(retryMost) }

// earn is called for every request.
func (b *budget) earn() {
	// A full budget is the rule, and reading it disturbs nobody. That two may pass the check at once does no harm: spend
	// brings it back.
	if b.left.Load() < retryMost {
		b.left.Add(1)
	}
}

// spend takes a retry, if there is one.
func (b *budget) spend() bool {
	for {
		left := b.left.Load()
		if left < retryCost {
			return false
		}
		if b.left.CompareAndSwap(left, left-retryCost) {
			return true
		}
	}
}
