package sluice

import (
	"context"
	"time"
)

// MaxSettle is for tests of settlements by id.
const MaxSettle = maxSettleMemory

// SettleOnce is for tests of settlements by id.
func (l *Limiter) SettleOnce(ctx context.Context, id string, remember time.Duration, takes []Take) (bool, int64, error) {
	return l.settleOnce(ctx, id, remember, takes)
}

// WithoutForesight has a limiter not reckon with what others will spend.
func WithoutForesight() Option { return func(o *options) { o.noExtrapolation = true } }
