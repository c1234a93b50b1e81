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

// attribute is a compiled reference: the fields its value is read from, and how the value is compared.
type attribute struct {
	name   string // as rules refer to it
	ip     bool
	fields []*Field
	preset *string // value of requests without the attribute
	secret bool
	lower  bool
}

// attributes numbers the attributes that a set's rules refer to, so that each is read at most once per request.
type attributes struct {
	list     []attribute
	numbers  map[string]int
	declared map[string]*Attribute
	used     map[string]bool // declared attributes that are referred to
}

// bareRefs are references without a name after a colon.
var bareRefs = []string{"ip", "method", "host", "path", "basic_user"}

// namedRefs are the kinds of references with a name, as in header:X-User.
var namedRefs = []string{"header", "query", "cookie", "claim", "attr"}

// refHelp is the end of messages about unknown references.
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
			fault(d.Pos, "attribute %q: the name is reserved for a built-in attribute: choose another name", d.Name)
		case first != nil:
			fault(d.Pos, "attribute %q is declared twice, first %s: remove one", d.Name, first.Pos.or("above"))
		case len(d.Sources) == 0:
			fault(d.Pos, `attribute %q: has no source: write one, such as {header: X-User} or {claim: sub}`, d.Name)
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
				fault(ref.Pos, "attribute %q: %s is built in: refer to it directly", d.Name, ref.Name)
			}
		}
	}
	return a, faults
}

// simpleRef returns the field of a reference that is not a declared attribute. For "ip" it is nil.
func simpleRef(ref string) (*Field, error) {
	kind, name, named := strings.Cut(ref, ":")
	switch {
	case ref == "ip":
		return nil, nil
	case !named && slices.Contains(bareRefs, ref):
		return newField(ref, ""), nil
	case named && name == "" && slices.Contains(namedRefs, kind):
		return nil, fmt.Errorf("%q has no name: write %s:NAME", ref, kind)
	case named && slices.Contains(namedRefs, kind):
		return newField(kind, name), nil
	}
	return nil, fmt.Errorf("there is no attribute %q: %s", ref, refHelp)
}

// resolve returns the index of the attribute that a reference names.
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
			_ = compiled.from(from.Name) // newAttributes has reported the error
		}
		if d.Default != nil && !compiled.ip && !compiled.is(FieldPath) {
			value, err := compiled.canonicalValue(nil, *d.Default)
			if err != nil {
				a.list = append(a.list, compiled) // so that further references to it report no error
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

// header returns the name of the header that a field is read from, or "".
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

// didYouMean returns a suggestion of the closest name, or "".
func didYouMean(written string, names []string) string {
	if best := suggest.Closest(written, names); best != "" {
		return fmt.Sprintf(": did you mean %q?", best)
	}
	return ""
}

// read reads the attribute from the request. An empty value counts as absent: applications treat the two alike, and
// otherwise an empty value would bypass a rule that rejects requests without the attribute.
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

// digestBytes is the length of a stored digest in bytes: long enough that finding two values with the same digest is
// infeasible.
const digestBytes = 16

// appendSecret appends the key of a secret value. The secret has a fixed length and the digest is truncated, so that
// prefixing is as safe as HMAC.
func appendSecret(b []byte, secret *[32]byte, value string) []byte {
	at := len(b)
	b = append(append(b, secret[:]...), value...)
	sum := sha256.Sum256(b[at:])
	clear(b[at:]) // the buffer is reused and must not keep the value
	return keyenc.AppendDigest(b[:at], sum[:digestBytes])
}

// never returns the reason why no request can have a value for the attribute, or "" if one can. written is the value in
// the rule, counted its canonical form.
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
			why = "an empty value counts as missing"
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
			return "a method consists of letters, digits and !#$%&'*+-.^_`|~"
		}
	case FieldHost:
		if value == "" || strings.ContainsFunc(value, isNoHost) {
			return "write a host as in requests, such as api.example.com"
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
			return "the user name of basic authentication ends at a colon"
		}
	}
	return ""
}

// isNoToken reports whether r is not allowed in a method (RFC 9110, token).
func isNoToken(r rune) bool {
	return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
}

// isNoHost reports whether r is not allowed in the host of a request.
func isNoHost(r rune) bool {
	return r <= ' ' || r == 0x7f || strings.ContainsRune("/\\?#\"<>", r)
}

func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

// excludes reports whether the rule matches no request with this canonical value of an attribute.
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

// allows reports whether a request with this value of the predicate's attribute can match. It returns true for prefixes
// of addresses.
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

// doubts adds a warning about a value that is compared in another spelling than it is written in, or that no request
// has. what names the place of the value in the rule. it is the rule that the value belongs to, or nil in a match;
// number is the attribute, or negative for a segment of the path.
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
	case it == nil || attr != nil && attr.is(FieldCookie): // matches and cookies accept the spelling that people write and send
		return
	case attr != nil && attr.is(FieldHost) && strings.Contains(counted, "*"):
		msg = fmt.Sprintf("%s: %s names a single host: use a rule with match: {host: …} for all names below", what, shown)
	case (attr == nil || attr.is(FieldPath)) && strings.ContainsAny(counted, "*{}"):
		msg = fmt.Sprintf("%s: %s names a single path, in which *, { and } are literal: use a rule with match: {path: …} for a pattern", what, shown)
	case counted == written:
		return
	case secret:
		msg = what + ": a secret is compared in another spelling, such as lower case, and never equals the written one"
	default:
		msg = fmt.Sprintf("%s: %s is compared as %q: write that", what, shown, counted)
	}
	c.set.spellings = append(c.set.spellings, Warning{at, c.rule, msg})
}

// why returns the reason why no request that the rule matches has a value, or "".
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
