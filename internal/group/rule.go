package group

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluiceproject/sluice/internal/step"
)

// Accuracy, FailMode and Source mirror the types of the same names in package sluice.
type (
	Accuracy uint8
	FailMode uint8
	Source   uint8
)

const (
	AccuracyExact Accuracy = iota
	AccuracyLease
	AccuracyEventual
)

const (
	FailLocal FailMode = iota
	FailOpen
	FailClosed
)

const (
	SourceStore Source = iota
	SourceDenyCache
	SourceLease
	SourceEventual
	SourceFailLocal
	SourceFailOpen
	SourceFailClosed
)

// These errors are exported by package sluice under the same names.
var (
	ErrUnavailable = errors.New("sluice: store unavailable")
	ErrInvalid     = errors.New("sluice: invalid call")
)

const (
	// MaxCost is the maximum cost of one take.
	MaxCost = 1 << 50
	// MaxDelay is the maximum time that a take may reserve ahead.
	MaxDelay = 366 * 24 * time.Hour
)

// Rule holds the properties of a rule except for its numbers. It is immutable.
type Rule struct {
	ID           RuleID
	Name         string
	Accuracy     Accuracy
	OnFailure    FailMode
	Shadow       bool
	ChargeDenied bool
	Public       any // the *sluice.Rule

	registered Registered
}

// Known returns the numbers that the rule has and has had in the store with this registry.
func (r *Rule) Known(of *Registry) *Known { return r.registered.Known(of, r.ID) }

// Op returns a take of the rule under the numbers p.
func (r *Rule) Op(p *step.Params, key, hashTag string, cost int64) Op {
	return Op{
		Rule: r.ID, By: r, Key: key, HashTag: hashTag, Params: p, Shadow: r.Shadow,
		Request: step.Request{Cost: cost, Charge: r.ChargeDenied && p.Kind != step.Permits},
	}
}

// Registry holds the numbers of a store's rules, which give the shapes of stored states their meaning. It has no
// entries per key, and a decision that finds a state of its own shape does not use it. The zero Registry is empty.
type Registry struct {
	mu    sync.Mutex // guards rules
	rules map[RuleID]*Known
}

// Known is the growing set of one rule's numbers in a store. The zero Known is empty.
type Known struct {
	mu     sync.Mutex // serializes changes
	now    atomic.Pointer[step.Known]
	once   sync.Once
	latest *step.Known // view of now, see With
}

// Now returns the current set.
func (k *Known) Now() *step.Known { return k.now.Load() }

// Learn adds numbers and reports whether any was new.
func (k *Known) Learn(numbers ...step.Numbers) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	was := k.now.Load()
	next := was.With(numbers...)
	if next == was {
		return false
	}
	k.now.Store(next)
	return true
}

// With adds the limit's numbers and returns a view of the set that includes later additions.
func (k *Known) With(p *step.Params) *step.Known {
	if !k.now.Load().Has(p) {
		k.Learn(p.Numbers())
	}
	k.once.Do(func() { k.latest = step.Latest(k.Now) })
	return k.latest
}

// maxRegistered is the maximum number of rules in a registry. The numbers of further rules are kept as long as the rule
// exists.
const maxRegistered = 200_000

// Known returns the numbers of a rule, which the caller may read and add to.
func (r *Registry) Known(id RuleID) *Known {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.rules[id]
	if k == nil {
		k = new(Known)
		if r.rules == nil {
			r.rules = make(map[RuleID]*Known)
		}
		if len(r.rules) < maxRegistered {
			r.rules[id] = k
		}
	}
	return k
}

// All returns the numbers of all rules that have any.
func (r *Registry) All() map[RuleID][]step.Numbers {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make(map[RuleID][]step.Numbers, len(r.rules))
	for id, k := range r.rules {
		if numbers := k.Now().All(); len(numbers) > 0 {
			all[id] = numbers
		}
	}
	return all
}

// Registered caches the entry of one rule in one registry.
type Registered struct{ last atomic.Pointer[registered] }

type registered struct {
	in    *Registry
	known *Known
}

// Known returns the registry's numbers of the rule.
func (d *Registered) Known(r *Registry, id RuleID) *Known {
	if last := d.last.Load(); last != nil && last.in == r {
		return last.known
	}
	k := r.Known(id)
	d.last.Store(&registered{r, k})
	return k
}
