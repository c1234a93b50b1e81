package envoyratelimit

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/edge/rls"
	"github.com/sluiceproject/sluice/cmd/internal/envoy/stats"
	"github.com/sluiceproject/sluice/rules"
)

// ruleSnapshot is the compiled rule set. It is immutable.
type ruleSnapshot struct {
	set      *rules.Set
	limits   map[*rules.DescriptorLimit]*limit
	counters map[string]*counters // by domain
}

// limit is a compiled limit of a rule.
type limit struct {
	unit     rls.Unit
	requests uint32
	counter  *sluice.Rule
	counted  *sluice.Rule // represents all counters of its name, of any fail mode
	closed   bool         // denies while the store is unavailable, even if SLUICE_ON_FAILURE is error
	stats    *stats.Limit // nil: its name contains values of the request
	metadata *structpb.Struct
}

// counters are the counters of a domain, by fail mode and unit. Counters of a unit have the same name in all modes, so that a
// rule and a limit override of a request for the same descriptor share their count.
type counters [sluice.FailClosed + 1][8]*sluice.Rule

// maxCounted is the maximum of a counter. No limit is larger, so that counting is never denied.
const maxCounted = 1<<32 - 1

var units = [...]rls.Unit{rls.Second, rls.Minute, rls.Hour, rls.Day, rls.Week, rls.Month, rls.Year}

// window returns the length of a unit. Months have 30 days and years 365.
func window(u rls.Unit) time.Duration { return time.Duration(u.Seconds()) * time.Second }

// unitOf returns the unit with the length d.
func unitOf(d time.Duration) rls.Unit {
	for _, u := range units {
		if window(u) == d {
			return u
		}
	}
	return rls.UnitUnknown
}

// unitLimits represent limit overrides of requests, by unit. Their counts are compared here, not in the store.
var unitLimits = func() (limits [8]*sluice.Limit) {
	for _, u := range units {
		limits[u] = sluice.Must(sluice.Limit{Count: maxCounted, Window: window(u), Algorithm: sluice.FixedWindow}.Build())
	}
	return limits
}()

// newCounters returns the counters of a domain.
func newCounters(domain string) *counters {
	name := "rls/" + domain
	if len(name)+len("/MINUTE") > sluice.MaxRuleName {
		sum := sha256.Sum256([]byte(domain))
		name = "rls~" + hex.EncodeToString(sum[:])
	}
	c := new(counters)
	for mode := range c {
		for _, u := range units {
			c[mode][u] = sluice.Must(sluice.NewRule(sluice.Rule{
				Name: name + "/" + u.String(), Limit: *unitLimits[u], OnFailure: sluice.FailMode(mode), ChargeDenied: true,
			}))
		}
	}
	return c
}

// compile compiles a rule set. Domains of the previous rule set keep their statistics.
func (s *Service) compile(set *rules.Set) (*ruleSnapshot, error) {
	l := &ruleSnapshot{set: set, limits: make(map[*rules.DescriptorLimit]*limit), counters: make(map[string]*counters)}
	before := s.rules.Load()
	var (
		faults []error
		keys   []string
		named  []*limit
	)
	for _, domain := range set.Config().Domains {
		if before != nil {
			l.counters[domain.Name] = before.counters[domain.Name]
		}
		if l.counters[domain.Name] == nil {
			l.counters[domain.Name] = newCounters(domain.Name)
		}
		for _, d := range set.DescriptorLimits(domain.Name) {
			if d.Unlimited {
				continue
			}
			one, err := s.newLimit(d, l.counters[domain.Name])
			if err != nil {
				faults = append(faults, err)
				continue
			}
			l.limits[d] = one
			if key, ok := d.FixedStatKey(); ok {
				keys, named = append(keys, key), append(named, one)
			}
		}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	for i, stats := range s.stats.Replace(keys) {
		named[i].stats = stats
	}
	return l, nil
}

func (s *Service) newLimit(d *rules.DescriptorLimit, c *counters) (*limit, error) {
	at := d.Source.Pos
	if len(d.Rules) != 1 {
		return nil, &rules.Error{Pos: at, Msg: "rate_limit: `sluice ratelimit` counts one limit for a descriptor: " +
			"write one, or use `sluice serve`"}
	}
	r := &d.Rules[0].Limit
	unit := unitOf(r.Window)
	if r.Algorithm != sluice.FixedWindow || unit == rls.UnitUnknown || d.Rules[0].Accuracy != sluice.AccuracyExact {
		return nil, &rules.Error{Pos: at, Msg: "rate_limit: `sluice ratelimit` counts exactly, in fixed windows of a unit, as " +
			"Envoy's service does: remove algorithm, window, unit_multiplier and accuracy, or use `sluice serve`"}
	}
	// on_failure: local is the default, so it cannot be distinguished from an unset key: SLUICE_ON_FAILURE applies.
	mode := d.Rules[0].OnFailure
	one := &limit{unit: unit, requests: uint32(r.Count), closed: mode == sluice.FailClosed}
	if mode == sluice.FailLocal {
		mode = s.failMode
	}
	one.counter, one.counted = c[mode][unit], c[0][unit]
	if len(d.Metadata) > 0 {
		var err error
		if one.metadata, err = structpb.NewStruct(d.Metadata); err != nil {
			return nil, &rules.Error{Pos: at, Msg: "error parsing metadata: " + err.Error()}
		}
	}
	return one, nil
}

// dump returns the limits in the format of the reference's /rlconfig, sorted by name.
func (l *ruleSnapshot) dump() string {
	var lines []string
	for d, one := range l.limits {
		lines = append(lines, dumpLine(d.FullKey, one.unit, one.requests, d))
	}
	for _, domain := range l.set.Config().Domains {
		for _, d := range l.set.DescriptorLimits(domain.Name) {
			if d.Unlimited {
				lines = append(lines, dumpLine(d.FullKey, rls.UnitUnknown, 0, d))
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}
