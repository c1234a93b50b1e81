package sluice

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sluiceproject/sluice/internal/step"
	"github.com/sluiceproject/sluice/internal/table"
)

// fallback counts in this process while the store cannot answer. It is made when first needed.
type fallback struct {
	once  sync.Once
	table *table.Table
}

// fallbackBytes bounds the fallback's memory.
const fallbackBytes = 32 << 20

// fail answers takes by their rules' fail modes. A caller that gave up and a call that makes no sense get the error:
// neither is the store's fault, and a mistake must never fail open.
func (l *Limiter) fail(ctx context.Context, takes []Take, out []Decision, err error) error {
	if errors.Is(err, ErrInvalid) || ctx.Err() != nil {
		return err
	}
	if l.events.StoreFailed != nil {
		l.events.StoreFailed(ctx, err)
	}
	for i := range takes {
		out[i] = l.failTake(&takes[i])
	}
	return nil
}

func (l *Limiter) failOne(ctx context.Context, t Take, err error) (Decision, error) {
	takes, out := []Take{t}, []Decision{{}}
	if err := l.fail(ctx, takes, out, err); err != nil {
		return Decision{}, err
	}
	l.events.report(ctx, t, out[0])
	return out[0], nil
}

// closedRetry is when a caller denied by FailClosed may ask again: nobody knows when the store will be back.
const closedRetry = time.Second

func (l *Limiter) failTake(t *Take) Decision {
	limit := t.Effective().Params().Limit()
	switch t.Rule.OnFailure {
	case FailOpen:
		return Decision{Allowed: true, Source: SourceOpen, Limit: limit, Granted: t.Cost}
	case FailClosed:
		return Decision{Source: SourceClosed, Limit: limit, RetryAfter: closedRetry}
	}
	op, err := t.Op()
	if err != nil { // the store has checked the take already
		return Decision{Source: SourceClosed, Limit: limit, RetryAfter: closedRetry}
	}
	l.local.once.Do(func() { l.local.table = table.New(table.Config{Bytes: fallbackBytes}) })
	ops, answers := []table.Op{op}, []step.Answer{{}}
	l.local.table.Apply(time.Now().UnixMicro(), ops, answers)
	d := Answered(op.Params, &answers[0])
	d.Source = SourceLocal
	return d
}
