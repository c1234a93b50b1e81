package rules

import (
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/keyenc"
	"github.com/sluiceproject/sluice/internal/pairs"
	"github.com/sluiceproject/sluice/internal/private"
	"github.com/sluiceproject/sluice/internal/suggest"

	"github.com/sluiceproject/sluice/internal/match"
)

// ErrUnknownRule is wrapped when no active rule has the name.
var ErrUnknownRule = errors.New("no active rule has this name")

// Buckets returns the buckets of a rule for a key, to inspect, reset or block them. rule is the name in the rule file,
// or the path of an Envoy descriptor ("messaging/message_type"); "rule#2" is one of several limits. parts are the
// values of the rule's key, as in requests or as returned by [Set.KeyParts], in any order. The error names missing
// parts.
//
// A part with the name of the attribute that chooses the rule's tiers, such as the plan, selects one tier. Without it,
// a rule whose tiers use different buckets has several for one key, and all are returned.
func (s *Set) Buckets(rule string, parts []KeyPart) ([]sluice.Bucket, error) {
	tiers, err := s.TierBuckets(rule, parts)
	type place struct{ rule, kind string }
	seen := make(map[place]bool)
	var all []sluice.Bucket
	for i := range tiers {
		b := &tiers[i].Bucket
		if p := (place{b.Rule.Name, private.CounterKind(b.EffectiveLimit())}); !seen[p] {
			seen[p] = true
			all = append(all, *b)
		}
	}
	return all, err
}

// TierBucket is a bucket with the limit of a tier.
type TierBucket struct {
	sluice.Bucket
	Tier string // such as "plan=pro"; empty for the limit of the rule or of an override
}

// TierBuckets is [Set.Buckets] with every limit that a bucket may have, because the key alone does not determine the
// tier.
func (s *Set) TierBuckets(rule string, parts []KeyPart) ([]TierBucket, error) {
	n, ok := s.names()[rule]
	if !ok {
		return nil, s.noRule(rule)
	}
	var all []TierBucket
	var err error
	if n.item != nil {
		all, err = s.itemBuckets(n.item, parts)
	} else {
		var of []sluice.Bucket
		of, err = s.domains[n.limit.Domain].buckets(n.limit, parts)
		for _, b := range of {
			all = append(all, TierBucket{Bucket: b})
		}
	}
	if err != nil {
		return nil, fmt.Errorf("rule %s: %w", rule, err)
	}
	if n.bucket != "" {
		all = slices.DeleteFunc(all, func(b TierBucket) bool { return b.Rule.Name != n.bucket })
	}
	return all, nil
}

func (s *Set) noRule(name string) error {
	for i := range s.cfg.Rules {
		if r := &s.cfg.Rules[i]; r.Name == name && r.Disabled {
			return fmt.Errorf("%w: %q is not enabled", ErrUnknownRule, name)
		}
	}
	names := s.RuleNames()
	if close := suggest.Closest(name, names); close != "" {
		return fmt.Errorf("%w: %q: did you mean %q?", ErrUnknownRule, name, close)
	}
	const most = 10
	switch {
	case len(names) == 0:
		return fmt.Errorf("%w: %q: there are no active rules", ErrUnknownRule, name)
	case len(names) > most:
		return fmt.Errorf("%w: %q: there are %s and %d more", ErrUnknownRule, name, strings.Join(names[:most], ", "), len(names)-most)
	}
	return fmt.Errorf("%w: %q: there are %s", ErrUnknownRule, name, strings.Join(names, ", "))
}

func (s *Set) itemBuckets(it *item, parts []KeyPart) ([]TierBucket, error) {
	tier, parts, err := s.tierOf(it, parts)
	if err != nil {
		return nil, err
	}
	k, err := s.itemKey(it, parts)
	if err != nil {
		return nil, err
	}
	type named struct {
		choice
		tier string
	}
	choices := []named{{it.limits, ""}}
	if own, ok := it.overrides[k]; ok {
		choices = []named{{own, ""}}
	} else if tier != nil {
		if chosen, ok := it.tiers[*tier]; ok {
			choices = []named{{chosen, it.rule.Tiers.By.Name + "=" + *tier}}
		}
	} else {
		for _, value := range slices.Sorted(maps.Keys(it.tiers)) {
			choices = append(choices, named{it.tiers[value], it.rule.Tiers.By.Name + "=" + value})
		}
	}
	enforced := it.rule.enforces(k)
	var all []TierBucket
	for i := range it.buckets {
		b := &it.buckets[i]
		rule := b.enforced
		if !enforced {
			rule = b.shadow
		}
		for _, c := range choices {
			if limit := c.limitOf(b); limit != nil {
				all = append(all, TierBucket{sluice.Bucket{Rule: rule, Limit: limit, Key: k}, c.tier})
			}
		}
	}
	if len(all) == 0 {
		return nil, errors.New("no bucket for this key: its override or tier is unlimited or deny")
	}
	return all, nil
}

// tierOf returns the tier named in parts, or nil, and the parts of the key.
func (s *Set) tierOf(it *item, parts []KeyPart) (*string, []KeyPart, error) {
	if it.tierBy == byNothing {
		return nil, parts, nil
	}
	by := it.rule.Tiers.By.Name
	given := slices.IndexFunc(parts, func(p KeyPart) bool { return p.Name == by })
	if given < 0 {
		return nil, parts, nil
	}
	value, quoted, err := readValue(parts[given].Value)
	if err == nil && !quoted && value != partAbsent { // absent is not a tier
		value, err = s.canonicalValue(&part{attr: it.tierBy, segment: it.tierBy == bySegment}, value)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", by, err)
	}
	if !slices.ContainsFunc(it.per, func(p part) bool { return p.name == by }) {
		parts = slices.Delete(slices.Clone(parts), given, given+1)
	}
	return &value, parts, nil
}

// itemKey returns the key of requests with these values.
func (s *Set) itemKey(it *item, parts []KeyPart) (string, error) {
	given := make(map[string]string, len(parts))
	for _, p := range parts {
		if _, twice := given[p.Name]; twice {
			return "", fmt.Errorf("%q is given twice", p.Name)
		}
		given[p.Name] = p.Value
	}
	var b []byte
	if len(it.per) > 1 {
		b = keyenc.AppendSeveral(b)
	}
	for i := range it.per {
		p := &it.per[i]
		value, ok := given[p.name]
		if !ok {
			return "", it.wants("%q is missing", p.name)
		}
		delete(given, p.name)
		text, err := s.partKey(p, value)
		if err != nil {
			return "", fmt.Errorf("%s: %w", p.name, err)
		}
		if len(it.per) > 1 {
			b = keyenc.AppendBytes(b, text)
		} else {
			b = text
		}
	}
	for name := range given {
		return "", it.wants("%q is not part of the key", name)
	}
	return string(b), nil
}

// wants returns an error that lists the attributes of the rule's key.
func (it *item) wants(format, name string) error {
	what := make([]string, len(it.per))
	for i := range it.per {
		what[i] = it.per[i].name
	}
	text := "all requests together: give no key"
	if len(what) > 0 {
		text = "per " + strings.Join(what, ", ") + ": give a value for each"
	}
	return fmt.Errorf(format+"; the rule counts %s", name, text)
}

// partKey returns a part of a key from a written value or a value of [Set.KeyParts].
func (s *Set) partKey(p *part, written string) ([]byte, error) {
	secret := p.attr >= 0 && s.attrs[p.attr].secret
	switch {
	case written == partAbsent && !p.segment:
		return []byte(keyenc.Absent), nil
	case written == partNoAddr && !p.segment:
		return []byte(keyenc.NoAddr), nil
	case strings.HasPrefix(written, partSecret) && secret:
		sum, err := hex.DecodeString(written[len(partSecret):])
		if err != nil || len(sum) != digestBytes {
			return nil, fmt.Errorf("write ~ and the %d digits of the digest, or the secret itself, quoted if it begins with ~",
				2*digestBytes) // the error must not repeat the value, which may be the secret
		}
		return keyenc.AppendDigest(nil, sum), nil
	}
	value, quoted, err := readValue(written)
	switch {
	case err != nil && secret:
		return nil, errors.New("a secret that begins with a quote must be quoted like a Go string")
	case err != nil:
		return nil, err
	case len(value) > match.MaxAttributeBytes:
		return nil, fmt.Errorf("has %d bytes, at most %d are allowed", len(value), match.MaxAttributeBytes)
	case !quoted:
		if value, err = s.canonicalValue(p, value); err != nil {
			return nil, err
		}
	}
	if secret {
		return appendSecret(nil, &s.secret, value), nil
	}
	return keyenc.AppendValue(nil, value), nil
}

// readValue unquotes a quoted value.
func readValue(written string) (value string, quoted bool, err error) {
	if !strings.HasPrefix(written, `"`) {
		return written, false, nil
	}
	if value, err = strconv.Unquote(written); err != nil {
		return "", true, fmt.Errorf(`%s: a value that begins with a quote must be quoted, such as "\"x\""`, strconv.Quote(written))
	}
	return value, true, nil
}

// canonicalValue returns the form of a request's value that is part of the key.
func (s *Set) canonicalValue(p *part, value string) (string, error) {
	if p.segment {
		if s.cfg.IgnorePathCase {
			value = strings.ToLower(value)
		}
		return value, nil
	}
	return s.attrs[p.attr].canonicalValue(s, value)
}

// canonicalValue returns the form of a value that is part of the key; it is the same for all spellings of a value.
func (c *attribute) canonicalValue(s *Set, value string) (string, error) {
	switch {
	case c.ip:
		return s.countedAddr(value)
	case c.is(FieldPath):
		path, err := s.writtenPath(value)
		if err != nil {
			err = writtenError{err}
		}
		return path, err
	case c.is(FieldHeader) && c.fields[0].Name == "Host": // edges return it in lower case
		value = strings.ToLower(value)
	case c.is(FieldMethod):
		value = strings.ToUpper(value)
	case c.is(FieldHost):
		value = match.CanonicalHost(value)
	case c.is(FieldCookie):
		plain, ok := pairs.CookieValue(value)
		if !ok {
			return "", errCookie
		}
		value = plain
	}
	if c.lower {
		value = strings.ToLower(value)
	}
	return value, nil
}

// writtenError is an error about a value in a file or an argument: its text follows a position, so that it has no
// package name.
type writtenError struct{ error }

func (e writtenError) Error() string { return strings.TrimPrefix(e.error.Error(), "rules: ") }
func (e writtenError) Unwrap() error { return e.error }

// writtenPath returns the canonical form of a path that is written in a rule or by an operator. A semicolon is an
// error, because edges reject requests with one.
func (s *Set) writtenPath(escaped string) (string, error) {
	if strings.Contains(escaped, ";") {
		return "", fmt.Errorf("%w: contains a semicolon: requests with one are rejected", ErrAmbiguousPath)
	}
	return s.canonicalPath(escaped)
}

var errCookie = errors.New("percent sign without two hexadecimal digits in a cookie's value: write %25 for a percent sign")

// countedAddr returns the subscriber of an address. A prefix must be that of one subscriber; others belong to several
// or to a part of one.
func (s *Set) countedAddr(value string) (string, error) {
	p, err := match.ParsePrefix(value)
	if err != nil {
		return "", err
	}
	own := keyenc.Subscriber(p.Addr(), s.bits)
	if !p.IsSingleIP() && own != p {
		return "", fmt.Errorf("%s is not the prefix of one client, such as %v: write a client's address; for a network write a rule with match: {ip: %s}", value, own, value)
	}
	return string(keyenc.AppendAddr(nil, p.Addr(), s.bits)), nil
}
