package storetest

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/sluiceproject/sluice"
)

// On a clock that stands still a fixed window and a token bucket are a counter. For any concurrent calls there must be
// an order in which a counter would return the same results.

type counterInput struct {
	reset bool
	cost  int64 // 0 is a peek
}

type counterOutput struct {
	allowed   bool
	remaining int64
}

// counterModel is a counter with a limit; its state is the usage.
func counterModel(limit int64) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return int64(0) },
		Step: func(state, input, output any) (bool, any) {
			spent, in, out := state.(int64), input.(counterInput), output.(counterOutput)
			if in.reset {
				return true, int64(0)
			}
			fits := spent+max(1, in.cost) <= limit
			if fits {
				spent += in.cost
			}
			return out.allowed == fits && out.remaining == limit-spent, spent
		},
		DescribeOperation: func(input, output any) string {
			return fmt.Sprintf("%+v → %+v", input, output)
		},
	}
}

const (
	linearClients = 8
	linearCalls   = 100 // per client
	linearLimit   = 60
	linearTime    = 30 * time.Second // timeout of the checker
)

// linearizable records the concurrent calls of eight callers on one key, and checks that there is such an order.
func linearizable(a algorithm) func(o *opener) error {
	return func(o *opener) error {
		p := o.probe()
		rule := a.rule("linear", linearLimit, long)
		var stamp atomic.Int64
		histories := make([][]porcupine.Operation, linearClients)
		err := together(linearClients, func(client int) {
			rng := rand.New(rand.NewPCG(uint64(client), 0x11EA))
			for range linearCalls {
				in := counterInput{cost: rng.Int64N(4)}
				if rng.IntN(25) == 0 && !o.caps.NoAdmin {
					in = counterInput{reset: true}
				}
				op := porcupine.Operation{ClientId: client, Input: in, Call: stamp.Add(1)}
				op.Output = p.counter(rule, in)
				op.Return = stamp.Add(1)
				histories[client] = append(histories[client], op)
			}
		})
		if err != nil {
			return err
		}
		if err := p.fault(); err != nil {
			return err
		}
		var all []porcupine.Operation
		for _, h := range histories {
			all = append(all, h...)
		}
		return checkLinear(all, linearLimit)
	}
}

// counter applies one call.
func (p *probe) counter(rule *sluice.Rule, in counterInput) counterOutput {
	if in.reset {
		p.reset(rule, "k")
		return counterOutput{}
	}
	d := p.take(rule, "k", in.cost)
	return counterOutput{d.Allowed, d.Remaining}
}

// checkLinear returns an error unless a counter could return these results.
func checkLinear(history []porcupine.Operation, limit int64) error {
	switch porcupine.CheckOperationsTimeout(counterModel(limit), history, linearTime) {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return fmt.Errorf("linearizability of %d calls is undecided after %v", len(history), linearTime)
	}
	return fmt.Errorf("not linearizable: no order of %d calls by %d callers explains their results", len(history), linearClients)
}
