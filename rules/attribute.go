package rules

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"net/textproto"
	"slices"
	"strings"

	"github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/internal/keyenc"
	"github.com/sluiceproject/sluice/internal/match"
	"github.com/sluiceproject/sluice/internal/suggest"
)

// attribute is a compiled reference: where its value comes from, and how it counts.
type attribute struct {
	name   string // as rules refer to it
	ip     bool
	fields []*Field
	preset *string // of requests that have none
	secret bool
	lower  bool
}

// attributes numbers the attributes that a set's rules refer to, so that a request is asked for each at most once.
type attributes struct {
	list     []attribute
	numbers  map[string]int
	declared map[string]*Attribute
	used     map[string]bool // declared ones that something refers to
}

// bareRefs are references without a name of their own.
var bareRefs = []string{"ip", "method", "host", "path", "basic_user"}

// namedRefs are references with a name, as in header:X-User.
var namedRefs = []string{"header", "query", "cookie", "claim", "attr"}

// refHelp is the end of messages about references.
const refHelp = `use ip, method, host, path, header:NAME, query:NAME, cookie:NAME, claim:NAME, basic_user, attr:NAME, ` +
	`path:NAME for a {NAME} in the rule's path, or a name declared under attributes`

func newAttributes(declared []Attribute) (*attributes, []error) {
	a := &attributes{numbers: make(map[string]int), declared: make(map[string]*Attribute), used: make(map[string]bool)}
	var faults []error
	fault := func(at Position, format string, args ...any) {
		faults = append(faults, &Error{Pos: at, Msg: fmt.Sprintf(format, args...)})
	}
	for i := range declared {
		d := &declared[i]
		first := a.declared[d.Name]
		switch {
		case !match.IsName(d.Name):
			fault(d.Pos, "attribute %q: use letters, digits, - _ and . for its name", d.Name)
		case slices.Contains(bareRefs, d.Name):
			fault(d.Pos, "attribute %q: every request has that already: choose another name", d.Name)
		case first != nil:
			fault(d.Pos, "attribute %q is declared twice, first %s: remove one", d.Name, first.Pos.or("above"))
		case len(d.Sources) == 0:
			fault(d.Pos, `attribute %q: say where it comes from, such as {header: X-User} or {claim: sub}`, d.Name)
		}
		if first == nil {
			a.declared[d.Name] = d
		}
		for _, ref := range d.Sources {
			_, err := simpleRef(ref.Name)
			switch {
			case err != nil:
				fault(ref.Pos, "attribute %q: %v", d.Name, err)
			case ref.Name == "path" || ref.Name == "ip" && len(d.Sources) > 1:
				fault(ref.Pos, "attribute %q: %s needs no name of its own: refer to it directly", d.Name, ref.Name)
			}
		}
	}
	return a, faults
}

// simpleRef makes the field of a reference that is not a declared name. For "ip" it is nil.
func simpleRef(ref string) (*Field, error) {
	kind, name, named := strings.Cut(ref, ":")
	switch {
	case ref == "ip":
		return nil, nil
	case !named && slices.Contains(bareRefs, ref):
		return newField(ref, ""), nil
	case named && name == "" && slices.Contains(namedRefs, kind):
		return nil, fmt.Errorf("%q lacks a name: write %s:NAME", ref, kind)
	case named && slices.Contains(namedRefs, kind):
		return newField(kind, name), nil
	}
	return nil, fmt.Errorf("there is no attribute %q: %s", ref, refHelp)
}

// resolve returns the number of the attribute that a reference means.
func (a *attributes) resolve(ref string) (int, error) {
	if d := a.declared[ref]; d != nil {
		a.used[ref] = true
	}
	if n, ok := a.numbers[ref]; ok {
		return n, nil
	}
	compiled := attribute{name: ref}
	if d := a.declared[ref]; d != nil {
		compiled.preset, compiled.secret, compiled.lower = d.Default, d.Secret, d.Lowercase
		for _, from := range d.Sources {
			_ = compiled.from(from.Name) // newAttributes has reported it
		}
		if d.Default != nil && !compiled.ip && !compiled.is(FieldPath) {
			value, err := compiled.canonicalValue(nil, *d.Default)
			if err != nil {
				a.list = append(a.list, compiled) // other references to it are none of the error
				a.numbers[ref] = len(a.list) - 1
				return 0, fmt.Errorf("attribute %q: default: %w", ref, err)
			}
			compiled.preset = &value
		}
	} else if err := compiled.from(ref); err != nil {
		return 0, fmt.Errorf("%w%s", err, didYouMean(ref, a.names()))
	}
	a.list = append(a.list, compiled)
	a.numbers[ref] = len(a.list) - 1
	return len(a.list) - 1, nil
}

func (c *attribute) from(ref string) error {
	field, err := simpleRef(ref)
	switch {
	case err != nil:
		return err
	case field == nil:
		c.ip = true
	default:
		c.fields = append(c.fields, field)
		c.secret = c.secret || field.secret()
	}
	return nil
}

func (a *attributes) names() []string {
	names := slices.Clone(bareRefs)
	for name := range a.declared {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// headers lists the headers that attributes and the client's address are read from.
func (a *attributes) headers(ip *ClientIP) map[string]bool {
	all := map[string]bool{textproto.CanonicalMIMEHeaderKey(cmp.Or(ip.Header, "X-Forwarded-For")): true}
	for i := range a.list {
		for _, f := range a.list[i].fields {
			if name := f.header(); name != "" {
				all[name] = true
			}
		}
	}
	return all
}

// header is the header that a field is read from; "": none.
func (f *Field) header() string {
	switch f.Kind {
	case FieldHeader:
		return f.Name
	case FieldCookie:
		return "Cookie"
	case FieldBasicUser:
		return "Authorization"
	}
	return ""
}

// didYouMean suggests the name that is closest to what was written, if one is close.
func didYouMean(written string, names []string) string {
	if best := suggest.Closest(written, names); best != "" {
		return fmt.Sprintf(": did you mean %q?", best)
	}
	return ""
}

// read asks the request for the attribute. An empty value counts as none: applications take the one for the other, and a
// rule that rejects requests without the attribute would be easy to get around.
func (c *attribute) read(r Request) (string, Presence, error) {
	for _, f := range c.fields {
		value, found := r.Attribute(f)
		switch {
		case found == Ambiguous:
			return "", Ambiguous, fmt.Errorf("%w: %s", ErrAmbiguous, c.name)
		case found == Absent || value == "":
			continue
		case len(value) > match.MaxAttributeBytes:
			bounds.Attribute.Reached()
			return "", Absent, fmt.Errorf("%w: %s has %d bytes, at most %d are allowed", ErrAttributeTooLong, c.name, len(value), match.MaxAttributeBytes)
		}
		switch f.Kind {
		case FieldMethod:
			value = strings.ToUpper(value)
		case FieldHost:
			value = match.CanonicalHost(value)
		}
		if c.lower {
			value = strings.ToLower(value)
		}
		return value, Present, nil
	}
	if c.preset != nil {
		return *c.preset, Present, nil
	}
	return "", Absent, nil
}

// digestBytes is how much of a digest is kept: so much that nobody finds two values with the same.
const digestBytes = 16

// appendSecret appends the key of a secret value. The secret is of fixed length and the digest is cut, so that prefixing
// is as good as HMAC.
func appendSecret(b []byte, secret *[32]byte, value string) []byte {
	at := len(b)
	b = append(append(b, secret[:]...), value...)
	sum := sha256.Sum256(b[at:])
	clear(b[at:]) // the buffer is reused; the value must not stay in it
	return keyenc.AppendDigest(b[:at], sum[:digestBytes])
}

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
		if why = f.never(written); why == "" && written == "" {
			why = "an empty value counts as a missing one"
		}
		if why == "" {
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
