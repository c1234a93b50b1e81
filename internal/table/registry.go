package table

import (
	"sync"
	"sync/atomic"

	"github.com/sluiceproject/sluice/internal/step"
)

// Registry is what a store knows of its rules' numbers: what the shapes of the states mean that it may hold. There is
// nothing in it for a key, and a decision that finds its own shape does not ask it. The zero Registry is empty.
type Registry struct {
	mu    sync.Mutex // guards rules
	rules map[RuleID]*step.Known
}

// maxRegistered bounds the rules of a registry. What is known of those beyond lasts as long as the rule does.
const maxRegistered = 200_000

// Known returns what is known of a rule, to be read and added to.
func (r *Registry) Known(id RuleID) *step.Known {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.rules[id]
	if k == nil {
		k = new(step.Known)
		if r.rules == nil {
			r.rules = make(map[RuleID]*step.Known)
		}
		if len(r.rules) < maxRegistered {
			r.rules[id] = k
		}
	}
	return k
}

// all returns the rules of which something is known.
func (r *Registry) all() map[RuleID][]step.Numbers {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make(map[RuleID][]step.Numbers, len(r.rules))
	for id, k := range r.rules {
		if numbers := k.All(); len(numbers) > 0 {
			all[id] = numbers
		}
	}
	return all
}

// Registered remembers what one registry knows of one rule, so that it need not be looked up again.
type Registered struct{ last atomic.Pointer[registered] }

type registered struct {
	in    *Registry
	known *step.Known
}

// Known is what the registry knows of the rule.
func (d *Registered) Known(r *Registry, id RuleID) *step.Known {
	if last := d.last.Load(); last != nil && last.in == r {
		return last.known
	}
	k := r.Known(id)
	d.last.Store(&registered{r, k})
	return k
}
