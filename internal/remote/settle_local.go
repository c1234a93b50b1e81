package remote

import (
	"context"
	"time"

	"github.com/sluiceproject/sluice/internal/group"
	"github.com/sluiceproject/sluice/internal/step"
)

// settleLocally settles takes that were decided by local fallback. It returns the ops that are left for the store.
func (en *Engine) settleLocally(ctx context.Context, takes []group.Op) []group.Op {
	rest := make([]group.Op, 0, len(takes))
	for i := range takes {
		t := &takes[i]
		if !t.Local {
			rest = append(rest, *t)
			continue
		}
		var d group.Answer
		if late, ok := en.settleLocal(t, &d); ok {
			rest = append(rest, late)
		} else {
			en.forgive(ctx, t, &d)
		}
	}
	return rest
}

// forgive reports the cost that a settlement was not charged because of the cap, and returns it.
func (en *Engine) forgive(ctx context.Context, t *group.Op, d *group.Answer) int64 {
	n := t.Request.Cost - max(0, d.Granted)
	if t.Request.Cost <= 0 || n <= 0 {
		return 0
	}
	if en.Events.OnForgiven != nil {
		en.Events.OnForgiven(ctx, t, n)
	}
	return n
}

// settleLocal settles a take that was decided by local fallback. The store was not charged for it: the admitted usage
// is charged later, see unreported, and reduced if the take cost less. A cost beyond the estimate is returned as a
// charge for the store.
func (en *Engine) settleLocal(t *group.Op, d *group.Answer) (late group.Op, ok bool) {
	op, local := *t, en.fallback.open()
	op.Params = en.shareOf(t.Params)
	op.Request.Known = t.By.Known(&local.Rules).With(op.Params)
	var answer [1]step.Answer
	local.Apply(time.Now().UnixMicro(), []group.Op{op}, answer[:])
	*d = group.AnswerOf(op.Params, &answer[0])
	d.Source = group.SourceFailLocal
	if !en.IsRemote() || t.Params.Kind == step.Permits {
		return group.Op{}, false
	}
	if t.Request.Cost <= 0 {
		en.unreported.lower(t, -t.Request.Cost)
		return group.Op{}, false
	}
	late = t.By.Op(t.Params, t.Key, t.HashTag, t.Request.Cost)
	late.At, late.ID = t.At, t.ID
	return late, true
}
