package sluice

import (
	"context"
	"time"
)

// MaxSettle exports maxSettleMemory to tests.
const MaxSettle = maxSettleMemory

// SettleOnce exports settleOnce to tests.
func (l *Limiter) SettleOnce(ctx context.Context, id string, remember time.Duration, takes []Take) (bool, int64, error) {
	return l.settleOnce(ctx, id, remember, takes)
}

// WithoutForesight disables the extrapolation of other instances' usage.
func WithoutForesight() Option { return func(o *options) { o.noExtrapolation = true } }
