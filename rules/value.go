package rules

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/sluiceproject/sluice/internal/match"
)

// never returns why no request can have a value for the attribute, or "" if one can. The value is given as it was written and
// in the form that counts.
func (c *attribute) never(written, counted string) string {
	switch {
	case c.ip || c.preset != nil && *c.preset == counted:
		return ""
	case len(counted) > match.MaxAttributeBytes:
		return fmt.Sprintf("at most %d bytes are allowed", match.MaxAttributeBytes)
	}
	why := ""
	for _, f := range c.fields {
		if why = f.never(written); why == "" {
			return ""
		}
	}
	return why
}

func (f *Field) never(value string) string {
	switch f.Kind {
	case FieldMethod:
		if value == "" || strings.ContainsFunc(value, isNoToken) {
			return "a method has letters, digits and a few signs, and no spaces"
		}
	case FieldHost:
		if value == "" || strings.ContainsFunc(value, isNoHost) {
			return "write a host as requests have it, such as api.example.com"
		}
	case FieldHeader:
		if strings.Trim(value, " \t") != value {
			return "the value of a header has no spaces around it"
		}
		if strings.ContainsFunc(value, isControl) {
			return "the value of a header has no control characters"
		}
	case FieldBasicUser:
		if strings.Contains(value, ":") {
			return "a colon ends the user name of basic authentication"
		}
	}
	return ""
}

// isNoToken reports whether a method cannot have a character (RFC 9110, token).
func isNoToken(r rune) bool {
	return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
}

// isNoHost reports whether the host of a request cannot have a character.
func isNoHost(r rune) bool {
	return r <= ' ' || r == 0x7f || strings.ContainsRune("/\\?#\"<>", r)
}

func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

// excludes reports whether the rule matches no request that has a value, in the form that counts, for an attribute.
func (it *item) excludes(attr int, value string) bool {
	for i := range it.predicates {
		if p := &it.predicates[i]; p.attr == attr && !p.allows(value) {
			return true
		}
	}
	for _, except := range it.except {
		if len(except) == 1 && except[0].attr == attr && except[0].allows(value) && !except[0].ip {
			return true
		}
	}
	return false
}

// allows reports whether a request with a value of the predicate's attribute can fulfil it. For prefixes of addresses it is
// true.
func (p *predicate) allows(value string) bool {
	switch {
	case p.present != nil:
		return *p.present
	case p.ip:
		a, err := netip.ParseAddr(value)
		return err != nil || len(p.starts)+len(p.ends)+len(p.regexps) > 0 || p.addrs.Contains(a) != p.not
	}
	return p.fits(value) != p.not
}

// doubts adds a warning about a value that counts in another spelling than it is written in, or that no request has. what is
// where it is written. it is the rule whose requests it chooses among, or nil in a match; number is the attribute, or negative
// for a segment of the path.
func (c *compiler) doubts(at Position, what string, it *item, number int, written, counted string) {
	var attr *attribute
	if number >= 0 {
		attr = &c.attrs.list[number]
	}
	shown, secret := fmt.Sprintf("%q", written), attr != nil && attr.secret
	switch {
	case secret:
		shown = "a secret"
	case len(written) > match.MaxAttributeBytes:
		shown = fmt.Sprintf("a value of %d bytes", len(written))
	}
	msg := ""
	switch why := c.why(it, attr, number, written, counted); {
	case why != "":
		msg = fmt.Sprintf("%s: %s is never matched: %s", what, shown, why)
	case it == nil || attr != nil && attr.is(FieldCookie): // matches and cookies may be written as people write and send them
		return
	case attr != nil && attr.is(FieldHost) && strings.Contains(counted, "*"):
		msg = fmt.Sprintf("%s: %s names a single host: use a rule with match: {host: …} for all names below", what, shown)
	case (attr == nil || attr.is(FieldPath)) && strings.ContainsAny(counted, "*{}"):
		msg = fmt.Sprintf("%s: %s names a single path, in which *, { and } stand for themselves: use a rule with match: {path: …} for others", what, shown)
	case counted == written:
		return
	case secret:
		msg = what + ": a secret counts in another spelling than it is written in: in lower case, say"
	default:
		msg = fmt.Sprintf("%s: %s counts as %q: write that", what, shown, counted)
	}
	c.set.spellings = append(c.set.spellings, Warning{at, c.rule, msg})
}

// why returns why no request that a rule is for has a value, or "".
func (c *compiler) why(it *item, attr *attribute, number int, written, counted string) string {
	if attr == nil {
		return ""
	}
	if why := attr.never(written, counted); why != "" {
		return why
	}
	if it != nil && it.excludes(number, counted) {
		return "the rule does not match it"
	}
	return ""
}
