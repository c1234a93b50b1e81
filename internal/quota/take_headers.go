package quota

import (
	"net/http"
	"sync"

	"github.com/sluiceproject/sluice"
)

// TakeHeaders sets headers that tell callers what became of takes. What headers say of a limit is made once and kept, so
// it is for one set of rules, and goes away with it.
type TakeHeaders struct {
	Headers
	policies Cache
	lists    sync.Pool // of *List
}

// NewTakeHeaders returns one that knows nothing yet.
func NewTakeHeaders(h Headers) *TakeHeaders {
	return &TakeHeaders{Headers: h, lists: sync.Pool{New: func() any { return new(List) }}}
}

// SetFor sets the headers of the answer to a request that was allowed or denied. decisions[i] is that of takes[i], and
// there is at least one. What a denial's body may say, [NewDenial] knows.
func (t *TakeHeaders) SetFor(h http.Header, r *http.Request, takes []sluice.Take, decisions []sluice.Decision, denied bool) {
	l := t.lists.Get().(*List)
	t.Set(h, r, l.Of(&t.policies, takes), decisions, denied)
	t.lists.Put(l)
}

// List lists the rules of takes and their policies.
type List struct {
	Rules   []*sluice.Rule
	several Policies // if there are several
}

// Of returns the policies of takes, good until the next use.
func (l *List) Of(c *Cache, takes []sluice.Take) *Policies {
	l.Rules, l.several.each = l.Rules[:0], l.several.each[:0]
	for i := range takes {
		l.Rules = append(l.Rules, takes[i].Rule)
		one := c.of(&takes[i])
		if len(takes) == 1 {
			return one
		}
		l.several.each = append(l.several.each, one.each[0])
	}
	return &l.several
}

// Cache has the policies of rules and limits, made when they are first needed. There are never more than the set
// of rules has limits.
type Cache struct {
	made sync.Map // policyKey → *Policies of that one rule
}

type policyKey struct {
	rule  *sluice.Rule
	limit *sluice.Limit
}

func (c *Cache) of(t *sluice.Take) *Policies {
	k := policyKey{t.Rule, t.EffectiveLimit()}
	if ps, ok := c.made.Load(k); ok {
		return ps.(*Policies)
	}
	ps, _ := c.made.LoadOrStore(k, NewPolicies([]*sluice.Rule{k.rule}, k.limit))
	return ps.(*Policies)
}
