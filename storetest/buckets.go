package storetest

import (
	"context"
	"fmt"
	"time"

	"github.com/sluiceproject/sluice"
)

// buckets resets and blocks buckets with a hash tag, and with another limit than the rule's. This must affect these
// buckets and no others.
func buckets(o *opener) error {
	p := o.probe()
	ctx, keys := context.Background(), p.store.(sluice.StoreAdmin)
	other := sluice.Must(sluice.PerHour(7).WithAlgorithm(sluice.FixedWindow).Build())
	for _, a := range algorithms {
		rule := a.rule("buckets "+a.name, 5, time.Hour)
		limits := []*sluice.Limit{nil, other}
		if a.name == "fixed_window" { // the other limit has the same bucket
			limits = limits[:1]
		}
		for _, slot := range []string{"", "tenant", "{}"} {
			for i, limit := range limits {
				key := fmt.Sprint("key of ", slot, i)
				take := sluice.Take{Rule: rule, Limit: limit, Key: key, HashTag: slot, Cost: 1}
				peek := take
				peek.Cost = 0
				p.apply(take, take)
				p.take(rule, "bystander", 1)
				if err := keys.Reset(ctx, take.Bucket()); err != nil {
					return err
				}
				what := fmt.Sprintf("%s, hash tag %q, limit %d: ", a.name, slot, i)
				d := p.apply(peek)[0]
				p.expect(what+"Remaining after a reset", d.Remaining, d.Limit)
				if err := keys.Block(ctx, take.Bucket(), time.Hour); err != nil {
					return err
				}
				if d := p.apply(take)[0]; d.Allowed {
					p.failf("%sallowed, though the bucket is blocked", what)
				}
				if left, err := keys.Blocked(ctx, take.Bucket()); err != nil || left <= 50*time.Minute || left > time.Hour {
					p.failf("%sBlocked returned %v and error %v after a block of one hour", what, left, err)
				}
				if err := keys.Block(ctx, take.Bucket(), 0); err != nil {
					return err
				}
				if d := p.apply(take)[0]; !d.Allowed {
					p.failf("%sdenied, though the block was lifted", what)
				}
				if left, err := keys.Blocked(ctx, take.Bucket()); err != nil || left != 0 {
					p.failf("%sBlocked returned %v and error %v after the block was lifted", what, left, err)
				}
			}
		}
		p.expect(a.name+": usage of another bucket", p.spent(rule, "bystander"), min(5, 3*int64(len(limits))))
	}
	return p.fault()
}
