package group

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluiceproject/sluice/internal/step"
)

// Accuracy, FailMode and Source are package sluice's of the same names.
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

// Package sluice has these errors under the same names.
var (
	ErrUnavailable = errors.New("sluice: store is unavailable")
	ErrInvalid     = errors.New("sluice: invalid call")
)

const (
	// MaxCost bounds the cost of one take.
	MaxCost = 1 << 50
	// MaxDelay bounds how far ahead a take may reserve.
	MaxDelay = 366 * 24 * time.Hour
)

// Rule is what there is to know of a rule besides its numbers. It does not change.
type Rule struct {
	ID           RuleID
	Name         string
	Accuracy     Accuracy
	OnFailure    FailMode
	Shadow       bool
	ChargeDenied bool
	Public       any // the rule as users have it: a *sluice.Rule

	registered Registered
}

// Known is what a store's registry knows of the numbers that the rule has and has had there.
func (r *Rule) Known(of *Registry) *Known { return r.registered.Known(of, r.ID) }

// Op is a take of the rule under some numbers.
func (r *Rule) Op(p *step.Params, key, hashTag string, cost int64) Op {
	return Op{
		Rule: r.ID, By: r, Key: key, HashTag: hashTag, Params: p, Shadow: r.Shadow,
		Request: step.Request{Cost: cost, Charge: r.ChargeDenied && p.Kind != step.Permits},
	}
}

// Registry is what a store knows of its rules' numbers: what the shapes of the states mean that it may hold. There is
// nothing in it for a key, and a decision that finds its own shape does not ask it. The zero Registry is empty.
type Registry struct {
	mu    sync.Mutex // guards rules
	rules map[RuleID]*Known
}

// Known is what a store knows of one rule's numbers, which grows. The zero Known is empty.
type Known struct {
	mu     sync.Mutex // held to change it
	now    atomic.Pointer[step.Known]
	once   sync.Once
	latest *step.Known // follows now
}

// Now is what is known at this moment.
func (k *Known) Now() *step.Known { return k.now.Load() }

// Learn adds numbers, and reports whether any was new.
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

// With is what is known once the limit's numbers are, then and later.
func (k *Known) With(p *step.Params) *step.Known {
	if !k.now.Load().Has(p) {
		k.Learn(p.Numbers())
	}
	k.once.Do(func() { k.latest = step.Latest(k.Now) })
	return k.latest
}

// maxRegistered bounds the rules of a registry. What is known of those beyond lasts as long as the rule does.
const maxRegistered = 200_000

// Known returns what is known of a rule, to be read and added to.
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

// All returns the rules of which something is known.
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

// Registered remembers what one registry knows of one rule, so that it need not be looked up again.
type Registered struct{ last atomic.Pointer[registered] }

type registered struct {
	in    *Registry
	known *Known
}

// Known is what the registry knows of the rule.
func (d *Registered) Known(r *Registry, id RuleID) *Known {
	if last := d.last.Load(); last != nil && last.in == r {
		return last.known
	}
	k := r.Known(id)
	d.last.Store(&registered{r, k})
	return k
}
