package rules

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/keyenc"

	"github.com/sluiceproject/sluice/internal/match"
)

// MatchOutcome is the outcome of matching a request, before anything is counted.
type MatchOutcome uint8

const (
	MatchUnlimited MatchOutcome = iota // no rule matches: let it pass
	MatchExempt                        // on the allow list: let it pass
	MatchLimited                       // decide the takes
	MatchRejected                      // on the deny list, or not matched where that is rejected, or lacking an attribute of Per
)

// MatchResult is what a set says about a request. It is reused: its keys and slices are good until the next Match into it.
// The zero MatchResult works.
type MatchResult struct {
	Outcome MatchOutcome
	Takes   []sluice.Take // to be decided together
	Rules   []*Rule       // Rules[i] is why there is Takes[i]
	// Reason says in a few words why the request is rejected; Rule is the rule that did, if one did.
	Reason string
	Rule   *Rule
	// Shadowed are takes of rules in shadow mode that would have rejected the request before anything was counted: it lacks an
	// attribute of Per, or that is ambiguous or too long, or its cost is malformed. They are not decided, only reported; see
	// [sluice.Limiter.ReportShadowed].
	Shadowed []sluice.Take
	// Concurrency is set by edges that see requests end and release what they hold; see [sluice.Limiter.ReserveTakes]. For others
	// limits on what is in flight do not apply.
	Concurrency bool
	// Queued is set for a request that was matched before and lacks headers now. Nil: it is as it came.
	Queued *Queued

	set     *Set
	request Request
	addr    netip.Addr
	values  []attributeValue
	turn    uint32 // tells this request's values from those of earlier ones
	found   []int32
	buf     []byte // of keys
}

type attributeValue struct {
	text  string
	err   error
	found Presence
	turn  uint32
}

// Match finds the rules that apply to a request and what they take. An error means that the request has to be refused,
// since it is not known how it counts: see [ErrAmbiguous], [ErrAttributeTooLong], [ErrAmbiguousPath] and [ErrInvalidCost].
func (s *Set) Match(r Request, m *MatchResult) error {
	m.begin(s, r)
	err := s.match(m)
	m.request = nil // let go of it
	if err != nil {
		m.Takes, m.Rules = m.Takes[:0], m.Rules[:0]
	}
	return err
}

// Clear lets go of all that the request said, for a MatchResult that is kept: some of it may be secret.
func (m *MatchResult) Clear() {
	clear(m.Takes)
	clear(m.Shadowed)
	clear(m.values)
	m.Takes, m.Shadowed, m.request, m.Queued = m.Takes[:0], m.Shadowed[:0], nil, nil
}

func (m *MatchResult) begin(s *Set, r Request) {
	m.Outcome, m.Reason, m.Rule = MatchUnlimited, "", nil
	m.Takes, m.Rules, m.Shadowed, m.buf = m.Takes[:0], m.Rules[:0], m.Shadowed[:0], m.buf[:0]
	m.request, m.addr = r, r.Addr().Unmap().WithZone("")
	if m.set != s {
		m.set, m.values, m.turn = s, make([]attributeValue, len(s.attrs)), 0
	}
	if m.turn++; m.turn == 0 { // after four billion requests the turns begin anew
		clear(m.values)
		m.turn = 1
	}
}

func (s *Set) match(m *MatchResult) error {
	var err error
	if m.found, err = s.index.find(m, m.found[:0]); err != nil {
		return s.matchLists(m, err)
	}
	slices.Sort(m.found)
	last := int32(-1)
	var rejected *Rule // the first that rejects the request, which another's error comes before
	why := ""
	for _, number := range m.found {
		if number == last {
			continue
		}
		last = number
		f := &s.fast[number]
		if m.Queued != nil && m.withheld(f.item) {
			continue
		}
		ok, err := f.holds(m)
		switch {
		case err != nil && f.shadow:
			m.shadowed(f, keyenc.Absent)
			continue
		case err != nil:
			return err
		case !ok:
			continue
		case f.kind == denies:
			return m.reject(nil, "on the deny list")
		case f.kind == allows:
			m.Outcome = MatchExempt
			return nil
		}
		m.Outcome = MatchLimited
		if err := m.take(f); err != nil {
			return err
		}
		if m.Outcome == MatchRejected && rejected == nil {
			rejected, why = m.Rule, m.Reason
		}
	}
	if rejected != nil {
		return m.reject(rejected, why)
	}
	if m.Queued != nil {
		if err := m.recharge(); err != nil || m.Outcome == MatchRejected {
			return err
		}
	}
	if m.Outcome == MatchUnlimited && s.cfg.Unmatched == UnmatchedDeny {
		return m.reject(nil, "no rule matches, and what no rule matches is refused")
	}
	return nil
}

// shadowed adds a take of a rule in shadow mode that would reject the request.
func (m *MatchResult) shadowed(f *fast, k string) {
	m.Shadowed = append(m.Shadowed, sluice.Take{Rule: f.item.buckets[0].shadow, Key: k, Cost: 1})
}

func (m *MatchResult) reject(r *Rule, why string) error {
	m.Outcome, m.Rule, m.Reason = MatchRejected, r, why
	m.Takes, m.Rules = m.Takes[:0], m.Rules[:0]
	return nil
}

// holds reports whether an item that the index found matches the request.
func (f *fast) holds(m *MatchResult) (bool, error) {
	if f.shadow && f.proved >= 0 { // the index also finds a rule in shadow whose attribute cannot be read
		if _, _, err := m.value(int(f.proved)); err != nil {
			return false, err
		}
	}
	for i := range f.checks {
		if ok, err := f.checks[i].holds(m); err != nil || !ok {
			return false, err
		}
	}
	if f.excepts {
		excepted, err := f.item.excepted(m)
		return !excepted, err
	}
	return true, nil
}

// excepted reports whether one of the item's exceptions holds.
func (it *item) excepted(m *MatchResult) (bool, error) {
	for _, except := range it.except {
		all := true
		for i := range except {
			ok, err := except[i].holds(m)
			if err != nil {
				return false, err
			}
			if !ok {
				all = false
				break
			}
		}
		if all {
			return true, nil
		}
	}
	return false, nil
}

// take adds the takes of a rule that matches.
func (m *MatchResult) take(f *fast) error {
	k, complete, err := m.key(f)
	if err != nil {
		if !f.shadow {
			return err
		}
		m.shadowed(f, keyenc.Absent)
		return nil
	}
	enforced := f.enforce == 0 || f.rule.enforces(k)
	refuses := enforced && !f.shadow
	if !complete {
		switch {
		case f.missing == MissingSkip:
			return nil
		case f.missing == MissingReject && refuses:
			if err := m.readable(f, k); err != nil { // comes before what is missing
				return err
			}
			return m.reject(f.rule, "lacks what it would count for")
		case f.missing == MissingReject:
			m.shadowed(f, k)
			return nil
		}
	}
	cost := f.cost
	if f.costBy != byNothing {
		if cost, err = m.cost(f); err != nil {
			if refuses {
				return err
			}
			m.shadowed(f, k)
			return nil
		}
	}
	if !f.chooses {
		for i := range f.takes {
			m.add(f, &f.takes[i], k, cost, enforced)
		}
		return nil
	}
	chosen, err := m.limits(f.item, k)
	switch {
	case err != nil && refuses:
		return err
	case chosen.never && refuses:
		return m.reject(f.rule, "is denied by name")
	case err != nil || chosen.never:
		m.shadowed(f, k)
		return nil
	}
	for i := range chosen.limits {
		m.add(f, &chosen.limits[i], k, cost, enforced)
	}
	return nil
}

// readable returns why the cost or the tier of a request cannot be read, or nil.
func (m *MatchResult) readable(f *fast, k string) error {
	if f.costBy != byNothing {
		if _, err := m.cost(f); err != nil {
			return err
		}
	}
	if f.chooses {
		_, err := m.limits(f.item, k)
		return err
	}
	return nil
}

func (m *MatchResult) add(f *fast, b *bucketLimit, k string, cost int64, enforced bool) {
	t := sluice.Take{Rule: b.shadow, Limit: b.limit, Key: k, Cost: cost, MaxDelay: f.delay}
	if enforced {
		t.Rule = b.enforced
	}
	if m.set.hasConcurrency && t.EffectiveLimit().Algorithm == sluice.Concurrency {
		if !m.Concurrency {
			return
		}
		t.Cost, t.MaxDelay = 1, 0 // a request is one, whatever it costs, and there is no place to wait for
	}
	m.Takes = append(m.Takes, t)
	m.Rules = append(m.Rules, f.rule)
}

// limits chooses the limits of a key: its own, those of its tier, or the rule's.
func (m *MatchResult) limits(it *item, k string) (choice, error) {
	if limits, ok := it.overrides[k]; ok {
		return limits, nil
	}
	if it.tierBy != byNothing {
		tier, found, err := m.referred(it, it.tierBy, it.rule.Tiers.By.Name)
		if err != nil {
			return choice{}, err
		}
		if limits, ok := it.tiers[tier]; ok && found == Present {
			return limits, nil
		}
	}
	return it.limits, nil
}

// enforces reports whether a key is among those for which the rule is enforced. All servers say the same.
func (r *Rule) enforces(k string) bool {
	if r.EnforceBasisPoints == 0 || r.EnforceBasisPoints == 100_00 {
		return true
	}
	h := fnv64(fnv64(fnvOffset, r.Name), k)
	h ^= h >> 32 // the low bits of FNV depend on the low bits of the text alone
	h *= 0x9E3779B97F4A7C15
	return int(h>>32%100_00) < r.EnforceBasisPoints
}

const fnvOffset = 14695981039346656037

func fnv64(h uint64, s string) uint64 {
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// cost reads what the request says that it costs.
func (m *MatchResult) cost(f *fast) (int64, error) {
	c := &f.rule.Cost
	text, found, err := m.referred(f.item, int(f.costBy), c.From.Name)
	if err != nil || found == Absent {
		return f.cost, err
	}
	cost, ok := costOf(text)
	if !ok {
		return 0, fmt.Errorf("%w: %s of rule %s", ErrInvalidCost, c.From.Name, f.rule.Name)
	}
	if c.Max > 0 {
		cost = min(cost, c.Max)
	}
	return cost, nil
}

// costOf reads a cost: a whole number of at least 1. More than [sluice.MaxCost] is that.
func costOf(text string) (int64, bool) {
	text = strings.TrimSpace(text)
	n, err := strconv.ParseUint(text, 10, 64)
	if errors.Is(err, strconv.ErrRange) && strings.Trim(text, "0123456789") == "" {
		return sluice.MaxCost, true
	}
	return int64(min(n, sluice.MaxCost)), err == nil && n > 0
}

// referred is the value of an attribute, or of the named segment of the path that a reference means.
func (m *MatchResult) referred(it *item, number int, ref string) (string, Presence, error) {
	if number != bySegment {
		return m.value(number)
	}
	return m.segment(it, ref[len("path:"):]), Present, nil
}

// key makes the key that the request counts under, and reports whether all of its parts were there. A single value is a
// key as it is; all else is written into the buffer.
func (m *MatchResult) key(f *fast) (k string, complete bool, err error) {
	if len(f.per) == 0 {
		return "", true, nil
	}
	complete = true
	if len(f.per) == 1 {
		p := &f.per[0]
		if plain := !p.segment && !m.set.attrs[p.attr].ip && !m.set.attrs[p.attr].secret; plain {
			text, found, err := m.value(p.attr)
			if err != nil || found == Absent {
				return keyenc.Absent, false, err
			}
			if text == "" || text[0] != 0 {
				return text, true, nil
			}
		}
		from := len(m.buf)
		complete, err = m.appendPart(f.item, p)
		return m.since(from), complete, err
	}
	// Parts need their length in front, which is known afterwards: they are written behind the place of the key.
	var room [256]byte
	b := keyenc.AppendSeveral(room[:0])
	for i := range f.per {
		from := len(m.buf)
		has, err := m.appendPart(f.item, &f.per[i])
		if err != nil {
			return "", false, err
		}
		complete = complete && has
		b = keyenc.AppendBytes(b, m.buf[from:])
		m.buf = m.buf[:from]
	}
	from := len(m.buf)
	m.buf = append(m.buf, b...)
	return m.since(from), complete, nil
}

// since is what the buffer holds from there on. It is not copied: a key lives as long as the request is decided.
func (m *MatchResult) since(from int) string {
	b := m.buf[from:]
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// appendPart writes one part of a key into the buffer.
func (m *MatchResult) appendPart(it *item, p *part) (complete bool, err error) {
	if p.segment {
		m.buf = keyenc.AppendValue(m.buf, m.segment(it, p.name[len("path:"):]))
		return true, nil
	}
	attr := &m.set.attrs[p.attr]
	if attr.ip {
		m.buf = keyenc.AppendAddr(m.buf, m.addr, m.set.bits)
		return m.addr.IsValid(), nil
	}
	text, found, err := m.value(p.attr)
	switch {
	case err != nil:
		return false, err
	case found == Absent:
		m.buf = append(m.buf, keyenc.Absent...)
		return false, nil
	case attr.secret:
		m.buf = appendSecret(m.buf, &m.set.secret, text)
	default:
		m.buf = keyenc.AppendValue(m.buf, text)
	}
	return true, nil
}

// segment is the segment of the path that the pattern which matched calls by this name.
func (m *MatchResult) segment(it *item, name string) string {
	path, _, _ := m.value(m.set.pathAttr)
	for i := range it.predicates {
		p := &it.predicates[i]
		if !p.path || p.not {
			continue
		}
		for _, pattern := range p.patterns {
			if n := pattern.Capture(name); n >= 0 && pattern.Matches(path) {
				return match.NthSegment(path, n)
			}
		}
	}
	return ""
}

// value is an attribute of the request, which is asked for it once.
func (m *MatchResult) value(attr int) (string, Presence, error) {
	v := &m.values[attr]
	if v.turn != m.turn {
		v.turn = m.turn
		v.text, v.found, v.err = m.set.attrs[attr].read(m.request)
		if attr == m.set.pathAttr && v.found == Present {
			v.text, v.err = m.set.canonicalPath(v.text)
		}
	}
	return v.text, v.found, v.err
}

func (s *Set) canonicalPath(escaped string) (string, error) {
	path, err := match.CanonicalPath(escaped)
	path = match.LoosePath(path)
	if s.cfg.IgnorePathCase {
		path = strings.ToLower(path)
	}
	return path, err
}
