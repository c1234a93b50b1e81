package main

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"strconv"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/rules"
)

// The rules scenario compares the cost of matching a request among many rules and among few. The rules of a set differ
// in one attribute, each request matches one of them, and all rules get requests. Both sets match the same number of
// requests, each in its own memory, so that the requests themselves cost the same.

var rulesContender = contender{
	name: "rules", role: roleOurs, clock: "none", scenarios: []string{ruleMatch},
	about: "rules.Set.Match and MatchDescriptors, without deciding",
}

const (
	fewRules  = 10
	manyRules = 10_000
)

// A shape is the attribute in which the rules of a set differ.
type shape struct {
	name    string
	rule    func(n int, c *rules.Config)
	request func(n int) ruleRequest
}

var shapes = []shape{
	{
		"path", func(n int, c *rules.Config) {
			c.Rules = append(c.Rules, benchRule(n, predicate("method", "GET"),
				rules.Predicate{Ref: rules.Ref{Name: "path"}, Patterns: []string{"/v1/thing" + strconv.Itoa(n) + "/{id}"}}))
		},
		func(n int) ruleRequest { return ruleRequest{path: "/v1/thing" + strconv.Itoa(n) + "/7", user: "ada"} },
	},
	{
		"header", func(n int, c *rules.Config) {
			c.Rules = append(c.Rules, benchRule(n, predicate("method", "GET"), predicate("header:X-Tenant", "tenant"+strconv.Itoa(n))))
		},
		func(n int) ruleRequest {
			return ruleRequest{path: "/", user: "ada", tenant: "tenant" + strconv.Itoa(n)}
		},
	},
	{
		"address", func(n int, c *rules.Config) {
			c.Rules = append(c.Rules, benchRule(n, predicate("ip", address(n).String()+"/24")))
		},
		func(n int) ruleRequest { return ruleRequest{path: "/", user: "ada", addr: address(n).Next()} },
	},
	{
		"descriptor", func(n int, c *rules.Config) {
			if len(c.Domains) == 0 {
				c.Domains = []rules.Domain{{Name: "bench"}}
			}
			c.Domains[0].Descriptors = append(c.Domains[0].Descriptors, rules.DescriptorRule{
				Key: "tenant", Value: "tenant" + strconv.Itoa(n), Limits: []rules.Limit{{Limit: benchLimit}},
			})
		},
		func(n int) ruleRequest {
			return ruleRequest{descriptors: []rules.Descriptor{{
				Entries: []rules.Entry{{Key: "tenant", Value: "tenant" + strconv.Itoa(n)}}, Cost: 1,
			}}}
		},
	},
}

var benchLimit = sluice.PerMinute(100).WithAlgorithm(sluice.FixedWindow)

func benchRule(n int, ps ...rules.Predicate) rules.Rule {
	return rules.Rule{
		Name: "rule" + strconv.Itoa(n), Match: rules.Match{Predicates: ps}, Per: []rules.Ref{{Name: "header:X-User"}},
		Limits: []rules.Limit{{Limit: benchLimit}},
	}
}

func predicate(ref, value string) rules.Predicate {
	return rules.Predicate{Ref: rules.Ref{Name: ref}, Values: []string{value}}
}

func address(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(n >> 8), byte(n), 0}) }

// ruleRequest is a request with only the attributes that the sets use.
type ruleRequest struct {
	path, user, tenant string
	addr               netip.Addr
	descriptors        []rules.Descriptor
}

func (r *ruleRequest) Addr() netip.Addr { return r.addr }

func (r *ruleRequest) Attribute(f *rules.Field) (string, rules.Presence) {
	value := ""
	switch {
	case f.Kind == rules.FieldMethod:
		value = "GET"
	case f.Kind == rules.FieldPath:
		value = r.path
	case f.Name == "X-User":
		value = r.user
	case f.Name == "X-Tenant":
		value = r.tenant
	}
	if value == "" {
		return "", rules.Absent
	}
	return value, rules.Present
}

// A ruleCost is the cost of a match in sets of one shape.
type ruleCost struct {
	Shape     string
	Few, Many float64 // nanoseconds
	Allocs    float64
}

// ruleRounds is how often the two sets take turns.
const ruleRounds = 11

func measureRules(s *scenario) (*result, error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	res := new(result)
	for _, shape := range shapes {
		few, err := newRuleRun(shape, fewRules, s.ops/ruleRounds)
		if err != nil {
			return nil, err
		}
		many, err := newRuleRun(shape, manyRules, s.ops/ruleRounds)
		if err != nil {
			return nil, err
		}
		cost := ruleCost{Shape: shape.name}
		var fews, manys []float64
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range ruleRounds {
			f, err := few.time()
			if err != nil {
				return nil, err
			}
			m, err := many.time()
			if err != nil {
				return nil, err
			}
			fews, manys = append(fews, f), append(manys, m)
		}
		runtime.ReadMemStats(&after)
		cost.Few, cost.Many = median(fews), median(manys)
		cost.Allocs = float64(after.Mallocs-before.Mallocs) / float64(2*ruleRounds*(s.ops/ruleRounds))
		res.Rules = append(res.Rules, cost)
	}
	return res, nil
}

// ruleRun is one set with its requests.
type ruleRun struct {
	set      *rules.Set
	requests []ruleRequest
	wanted   []*sluice.Rule // the rule that each request must match
	order    []uint32
	matched  rules.MatchResult
	found    rules.DescriptorMatches
}

func newRuleRun(s shape, n, ops int) (*ruleRun, error) {
	var c rules.Config
	run := &ruleRun{order: make([]uint32, ops)}
	for i := range n {
		s.rule(i, &c)
	}
	for i := range manyRules {
		run.requests = append(run.requests, s.request(i%n))
	}
	var err error
	if run.set, err = rules.New(c); err != nil {
		return nil, err
	}
	random := rand.New(rand.NewPCG(1, 2))
	for i := range run.order {
		run.order[i] = uint32(random.IntN(manyRules))
	}
	matched := make(map[*sluice.Rule]bool)
	for i := range manyRules {
		rule, err := run.match(uint32(i))
		if err != nil {
			return nil, failf("request %d of shape %s: %v", i, s.name, err)
		}
		matched[rule] = true
		run.wanted = append(run.wanted, rule)
	}
	if len(matched) != n {
		return nil, failf("%d of %d rules of shape %s are matched", len(matched), n, s.name)
	}
	return run, nil
}

func (r *ruleRun) match(i uint32) (*sluice.Rule, error) {
	request := &r.requests[i]
	takes := r.found.Takes
	if request.descriptors != nil {
		r.set.MatchDescriptors("bench", request.descriptors, &r.found)
		takes = r.found.Takes
	} else {
		if err := r.set.Match(request, &r.matched); err != nil {
			return nil, err
		}
		takes = r.matched.Takes
	}
	if len(takes) != 1 {
		return nil, fmt.Errorf("%d takes, want 1", len(takes))
	}
	return takes[0].Rule, nil
}

// time matches all requests in order and returns the nanoseconds per request.
func (r *ruleRun) time() (float64, error) {
	wrong := 0
	start := time.Now()
	for _, i := range r.order {
		rule, err := r.match(i)
		if err != nil {
			return 0, err
		}
		if rule != r.wanted[i] {
			wrong++
		}
	}
	elapsed := time.Since(start)
	if wrong > 0 {
		return 0, failf("%d requests matched another rule", wrong)
	}
	return float64(elapsed.Nanoseconds()) / float64(len(r.order)), nil
}
