package insight

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/rules"
)

// Config contains the sources of a recorder. Rules is required.
type Config struct {
	Rules func() *rules.Set // returns the rule set in use; called again when it may have changed
	// Security reports whether a rule is a security rule, which advice never loosens. Nil: none is.
	Security func(rule string) bool
	// KeyText returns the text of a key. Nil: the encoded key.
	KeyText func(rule *sluice.Rule, key string) string
	// Shed returns how many requests an upstream has shed that the rule had allowed, since the start. Nil: unknown.
	Shed func(rule string) (upstream string, n int64)
	// Now replaces the clock in tests.
	Now func() time.Time
}

// Recorder records decisions and judges rules. It is safe for concurrent use.
type Recorder struct {
	cfg      Config
	hash     func(key string) uint64
	live     atomic.Pointer[table]
	changing sync.Mutex   // held while live is replaced
	detailed atomic.Int64 // limits that follow keys
}

// table maps rules to their state. It is immutable except for the states.
type table struct {
	set    *rules.Set
	byRule map[*sluice.Rule]*state
	byName map[string]*state
	active []active
}

// active is a rule with the states of its limits.
type active struct {
	name   string
	limits []*state
}

// New returns a recorder that has seen nothing.
func New(cfg Config) *Recorder {
	seed := maphash.MakeSeed()
	r := &Recorder{cfg: cfg, hash: func(key string) uint64 { return maphash.String(seed, key) }}
	if cfg.Now == nil {
		r.cfg.Now = time.Now
	}
	r.live.Store(new(table))
	r.refresh()
	return r
}

// Events returns the events by which a limiter reports to r.
func (r *Recorder) Events() sluice.Events { return sluice.Events{OnDecision: r.decided} }

func (r *Recorder) micros() int64 { return r.cfg.Now().UnixMicro() }

func (r *Recorder) decided(_ context.Context, t sluice.Take, d sluice.Decision) {
	if t.Cost <= 0 || t.Receipt != 0 || d.Blocked || d.Source.Degraded() {
		return // refunds and settlements decide nothing; blocks and fail modes say nothing about the limit
	}
	if s := r.of(t.Rule); s != nil {
		s.record(r, &t, &d)
	}
}

// of returns the state of a rule, or nil if it is not in the rule set.
func (r *Recorder) of(rule *sluice.Rule) *state {
	t := r.live.Load()
	if s := t.byRule[rule]; s != nil {
		return s
	}
	if r.cfg.Rules() != t.set {
		t = r.refresh()
	}
	return t.byName[rule.Name] // of a copy, such as one in shadow mode, or of a set that was just replaced
}

// refresh updates the table to the rule set in use. A limit keeps its state as long as its name and its numbers stay.
func (r *Recorder) refresh() *table {
	r.changing.Lock()
	defer r.changing.Unlock()
	set, old := r.cfg.Rules(), r.live.Load()
	if set == old.set || set == nil {
		return old
	}
	t := &table{set: set, byRule: make(map[*sluice.Rule]*state), byName: make(map[string]*state)}
	for _, c := range set.ActiveRules() {
		a := active{name: c.Name}
		for _, rule := range c.Rules {
			s := t.byName[rule.Name]
			if s == nil {
				if s = old.byName[rule.Name]; s == nil || s.limit != rule.Limit.String() {
					s = &state{rule: rule, limit: rule.Limit.String(), since: r.micros()}
				}
				t.byName[rule.Name] = s
			}
			s.describe(c.Name, c.Per, r.cfg.Security != nil && r.cfg.Security(c.Name))
			t.byRule[rule] = s
			a.limits = append(a.limits, s)
		}
		t.active = append(t.active, a)
	}
	for _, rule := range set.LimiterRules() {
		if s := t.byName[rule.Name]; s != nil {
			t.byRule[rule] = s
		}
	}
	for name, s := range old.byName {
		if t.byName[name] != s && s.detailed() {
			r.detailed.Add(-1)
		}
	}
	r.live.Store(t)
	return t
}

// Rules that follow keys in full, and in brief once there are more of them.
const maxFull = 1000

var (
	full  = sizes{all: 40, denied: 40, held: 12, edges: 8}
	brief = sizes{all: 6, denied: 6, held: 3, edges: 1}
)

// sizes returns how many keys the next limit follows.
func (r *Recorder) sizes() sizes {
	if r.detailed.Add(1) > maxFull {
		return brief
	}
	return full
}
