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
	MatchUnlimited MatchOutcome = iota // no rule matches: allowed
	MatchExempt                        // on the allow list: allowed
	MatchLimited                       // decide the takes
	MatchRejected                      // on the deny list, unmatched with UnmatchedDeny, or without an attribute of Per
)

// MatchResult is the result of [Set.Match]. It is reusable: its keys and slices are valid until the next Match into it.
// The zero MatchResult is ready for use.
type MatchResult struct {
	Outcome MatchOutcome
	Takes   []sluice.Take // to be decided together
	Rules   []*Rule       // Rules[i] is the rule of Takes[i]
	// Reason is a short text that explains why the request is rejected; Rule is the rule that rejected it, if one did.
	Reason string
	Rule   *Rule
	// Shadowed contains takes of rules in shadow mode that would have rejected the request before anything was counted:
	// it lacks an attribute of Per, or that is ambiguous or too long, or its cost is malformed. They are not decided,
	// only reported; see [sluice.Limiter.ReportShadowed].
	Shadowed []sluice.Take
	// Concurrency enables concurrency limits for this match. Set it only if the caller releases the permits when the
	// request ends, see [sluice.Limiter.ReserveTakes]; otherwise such limits are skipped.
	Concurrency bool
	// Queued is set for a queued request, which was matched before and lacks headers now. Nil: the request is
	// unchanged.
	Queued *Queued

	set     *Set
	request Request
	addr    netip.Addr
	values  []attributeValue
	turn    uint32 // distinguishes the values of this request from those of earlier ones
	found   []int32
	buf     []byte // keys
}

type attributeValue struct {
	text  string
	err   error
	found Presence
	turn  uint32
}

// Match finds the rules that apply to a request, and their takes. An error means that the request must be rejected,
// because its key or cost cannot be determined: see [ErrAmbiguous], [ErrAttributeTooLong], [ErrAmbiguousPath] and
// [ErrInvalidCost].
func (s *Set) Match(r Request, m *MatchResult) error {
	m.begin(s, r)
	err := s.match(m)
	m.request = nil // do not keep the request
	if err != nil {
		m.Takes, m.Rules = m.Takes[:0], m.Rules[:0]
	}
	return err
}

// Clear removes all values of the request, some of which may be secret. Call it before keeping a MatchResult for reuse.
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
	if m.turn++; m.turn == 0 { // turns wrap around after 2³² requests
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
	var rejected *Rule // the first rule that rejects the request; an error of another comes first
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
		return m.reject(nil, "no rule matches, and unmatched is deny")
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
	if f.shadow && f.proved >= 0 { // the index also finds a rule in shadow mode whose attribute cannot be read
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

// excepted reports whether one of the item's exceptions matches.
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
	rejects := enforced && !f.shadow
	if !complete {
		switch {
		case f.missing == MissingSkip:
			return nil
		case f.missing == MissingReject && rejects:
			if err := m.readable(f, k); err != nil { // comes before a missing attribute
				return err
			}
			return m.reject(f.rule, "lacks an attribute of per")
		case f.missing == MissingReject:
			m.shadowed(f, k)
			return nil
		}
	}
	cost := f.cost
	if f.costBy != byNothing {
		if cost, err = m.cost(f); err != nil {
			if rejects {
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
	case err != nil && rejects:
		return err
	case chosen.never && rejects:
		return m.reject(f.rule, "denied by an override or a tier")
	case err != nil || chosen.never:
		m.shadowed(f, k)
		return nil
	}
	for i := range chosen.limits {
		m.add(f, &chosen.limits[i], k, cost, enforced)
	}
	return nil
}

// readable returns the error of reading the cost or the tier of a request, or nil.
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
		t.Cost, t.MaxDelay = 1, 0 // one request takes one permit, regardless of its cost, and is not delayed
	}
	m.Takes = append(m.Takes, t)
	m.Rules = append(m.Rules, f.rule)
}

// limits chooses the limits of a key: those of an override, of its tier, or of the rule.
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

// enforces reports whether the rule is enforced for a key. All instances agree.
func (r *Rule) enforces(k string) bool {
	if r.EnforceBasisPoints == 0 || r.EnforceBasisPoints == 100_00 {
		return true
	}
	h := fnv64(fnv64(fnvOffset, r.Name), k)
	h ^= h >> 32 // the low bits of FNV depend only on the low bits of the text
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

// cost reads the cost from the request.
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

// costOf parses a cost: a whole number of at least 1. A larger number than [sluice.MaxCost] counts as that.
func costOf(text string) (int64, bool) {
	text = strings.TrimSpace(text)
	n, err := strconv.ParseUint(text, 10, 64)
	if errors.Is(err, strconv.ErrRange) && strings.Trim(text, "0123456789") == "" {
		return sluice.MaxCost, true
	}
	return int64(min(n, sluice.MaxCost)), err == nil && n > 0
}

// referred returns the value of the attribute, or of the named segment of the path, that a reference names.
func (m *MatchResult) referred(it *item, number int, ref string) (string, Presence, error) {
	if number != bySegment {
		return m.value(number)
	}
	return m.segment(it, ref[len("path:"):]), Present, nil
}

// key returns the request's key, and reports whether all of its parts are present. A single value is its own key;
// others are written into the buffer.
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
	// Parts are preceded by their length, which is known afterwards: they are written after the place of the key.
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

// since returns the buffer from an index on. It is not copied: a key is valid until the request is decided.
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

// segment returns the segment of the path with this name in the pattern that matched.
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

// value returns an attribute of the request, which is read only once.
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
