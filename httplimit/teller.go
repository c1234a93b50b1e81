package httplimit

import (
	"net/http"
	"sync"

	"github.com/sluiceproject/sluice"
)

// Teller sets headers that tell callers what became of takes, as [Rules] does. It is for those who match and decide
// requests themselves. What headers say of a limit is made once and kept, so a Teller is for one set of rules, and goes
// away with it.
type Teller struct {
	config
	policies policyCache
	lineups  sync.Pool // of *lineup
}

// NewTeller returns one that knows nothing yet. Of the options, [Headers] and [ResetEpoch] count.
func NewTeller(opts ...Option) *Teller {
	return &Teller{config: newConfig(opts), lineups: sync.Pool{New: func() any { return new(lineup) }}}
}

// SetHeaders sets the headers of the answer to a request that was allowed or denied. decisions[i] is that of takes[i], and
// there is at least one. What a denial's body may say, [NewDenial] knows.
func (t *Teller) SetHeaders(h http.Header, r *http.Request, takes []sluice.Take, decisions []sluice.Decision, denied bool) {
	l := t.lineups.Get().(*lineup)
	t.setHeaders(h, r, l.of(&t.policies, takes), decisions, denied)
	t.lineups.Put(l)
}

// NewDenial is what a denied request is told. decisions[i] is that of takes[i], and one of them denies.
func NewDenial(takes []sluice.Take, decisions []sluice.Decision) *Denial {
	rules := make([]*sluice.Rule, len(takes))
	for i := range takes {
		rules[i] = takes[i].Rule
	}
	d := denialOf(rules, decisions)
	return &d
}

// lineup lists the rules of takes and their policies.
type lineup struct {
	rules   []*sluice.Rule
	several policies // if there are several
}

// of returns the policies of takes, good until the next use.
func (l *lineup) of(c *policyCache, takes []sluice.Take) *policies {
	l.rules, l.several.each = l.rules[:0], l.several.each[:0]
	for i := range takes {
		l.rules = append(l.rules, takes[i].Rule)
		one := c.of(&takes[i])
		if len(takes) == 1 {
			return one
		}
		l.several.each = append(l.several.each, one.each[0])
	}
	return &l.several
}

// policyCache has the policies of rules and limits, made when they are first needed. There are never more than the set
// of rules has limits.
type policyCache struct {
	made sync.Map // policyKey → *policies of that one rule
}

type policyKey struct {
	rule  *sluice.Rule
	limit *sluice.Limit
}

func (c *policyCache) of(t *sluice.Take) *policies {
	k := policyKey{t.Rule, t.Effective()}
	if ps, ok := c.made.Load(k); ok {
		return ps.(*policies)
	}
	ps, _ := c.made.LoadOrStore(k, newPolicies([]*sluice.Rule{k.rule}, k.limit))
	return ps.(*policies)
}
