package checkapi

import (
	"net/netip"
	"strings"

	"github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/internal/match"
	"github.com/sluiceproject/sluice/rules"
)

var attributeFields = []string{"method", "path", "host", "ip", "headers", "query", "cookies", "claims", "attributes"}

// attributes parses the attributes of a request.
func (p *parser) attributes(q *request) *fault {
	const want = `an object, such as {"method":"GET","path":"/"}`
	_, f := p.object(want, attributeFields, func(i int, _ uint32) (f *fault) {
		switch i {
		case 0:
			q.method, f = p.value("a method, such as GET")
			if f == nil && !isToken(q.method) {
				f = faultf("%q is not an HTTP method: write GET or POST, for example", shown(q.method))
			}
		case 1:
			q.path, f = p.value(`a path, such as "/posts"`)
		case 2:
			q.host, f = p.value(`a host, such as "example.com"`)
		case 3:
			q.ip, f = p.ip()
		case 4:
			f = p.pairs(q, rules.FieldHeader, true)
		case 5:
			f = p.pairs(q, rules.FieldQuery, true)
		case 6:
			f = p.pairs(q, rules.FieldCookie, true)
		case 7:
			f = p.pairs(q, rules.FieldClaim, false)
		case 8:
			f = p.pairs(q, rules.FieldAttr, false)
		}
		return f.in(attributeFields[i])
	})
	return f
}

// value parses a non-empty string.
func (p *parser) value(want string) (string, *fault) {
	s, f := p.string(want)
	switch {
	case f != nil:
		return "", f
	case s == "":
		return "", faultf("must not be empty: write %s, or leave the field out", want)
	case len(s) > match.MaxAttributeBytes:
		bounds.Attribute.Reached()
		return "", faultf("has %d bytes: the maximum is %d", len(s), match.MaxAttributeBytes)
	}
	return s, nil
}

func (p *parser) ip() (netip.Addr, *fault) {
	const want = "an address without port and zone, such as 192.0.2.1 or 2001:db8::1"
	s, f := p.value(want)
	if f != nil {
		return netip.Addr{}, f
	}
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return a, faultf("%q is not %s", shown(s), want)
	}
	return a, nil
}

// pairs parses an object of names and values. With lists, a value can be a list of strings.
func (p *parser) pairs(q *request, k rules.FieldKind, lists bool) *fault {
	if f := p.open('{', `an object, such as {"name":"value"}`); f != nil {
		return f
	}
	from := len(q.pairs)
	q.has |= 1 << k
	for read := 0; ; read++ {
		more, f := p.more('}', read)
		if f != nil || !more {
			return f
		}
		name, f := p.name()
		if f != nil {
			return f
		}
		switch {
		case name == "":
			return faultf("empty name: write a name, or leave the value out")
		case len(name) > maxName:
			bounds.CheckAttributes.Reached()
			return faultf("a name has %d bytes: the maximum is %d", len(name), maxName)
		case k == rules.FieldHeader && !isToken(name):
			return faultf("%q is not a valid header name", shown(name))
		}
		for i := from; i < len(q.pairs); i++ {
			if q.pairs[i].name == name {
				return faultf("given twice: remove one, or write a list of its values").in(shown(name))
			}
		}
		if f := p.values(q, k, name, lists); f != nil {
			return f.in(shown(name))
		}
	}
}

// values parses one value or, with lists, a list of values.
func (p *parser) values(q *request, k rules.FieldKind, name string, lists bool) *fault {
	if !lists {
		return p.pair(q, k, name, "a string, in double quotes")
	}
	const want = "a string in double quotes, or a list of them"
	if p.peek() != '[' {
		return p.pair(q, k, name, want)
	}
	return p.list(want, "the list must not be empty: write a value, or leave the name out", func(read int) *fault {
		return p.pair(q, k, name, "a string, in double quotes").inElement(read)
	})
}

func (p *parser) pair(q *request, k rules.FieldKind, name, want string) *fault {
	value, f := p.string(want)
	switch {
	case f != nil:
		return f
	case len(value) > match.MaxAttributeBytes:
		bounds.Attribute.Reached()
		return faultf("has %d bytes: the maximum is %d", len(value), match.MaxAttributeBytes)
	case len(q.pairs) == MaxPairs:
		bounds.CheckAttributes.Reached()
		return faultf("too many values: the maximum is %d headers, query parameters, cookies, claims and attributes per check", MaxPairs)
	}
	if k == rules.FieldHeader {
		value = strings.Trim(value, " \t") // as HTTP servers do
	}
	q.pairs = append(q.pairs, pair{k, name, value})
	return nil
}

// isToken reports whether s is a token of RFC 9110, as methods and header names are.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}
