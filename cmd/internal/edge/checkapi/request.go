package checkapi

import (
	"net/http"
	"net/netip"
	"strings"

	"github.com/sluiceproject/sluice/internal/clientip"
	"github.com/sluiceproject/sluice/internal/pairs"
	"github.com/sluiceproject/sluice/rules"
)

// request is what a check knows of a request, as rules look at it. It means what the same HTTP request means to
// httplimit; a test compares the two. What a check leaves out the request does not have.
type request struct {
	method, path, host string     // empty: not known
	ip                 netip.Addr // of the connection, until findClient
	pairs              []pair
	has                uint16 // kinds of pairs that were given, also if none was in them; a bit for each
}

// pair is a header, query parameter, cookie, claim or attribute. A name may be there several times.
type pair struct {
	kind        rules.FieldKind
	name, value string
}

var _ rules.Request = (*request)(nil)

// Addr is the client's address.
func (q *request) Addr() netip.Addr { return q.ip }

// findClient changes the address of the connection to the client's, as the middleware does: if it is that of a trusted
// proxy, the proxy's header is read.
func (q *request) findClient(clients *clientip.Finder) {
	if !clients.ReadsHeader() || !clients.TrustsAddr(q.ip.Unmap()) {
		return
	}
	lines := q.lines(clients.Header())
	if len(lines) == 0 {
		return
	}
	r := http.Request{Header: http.Header{clients.Header(): lines}}
	if q.ip.IsValid() {
		r.RemoteAddr = netip.AddrPortFrom(q.ip, 0).String()
	}
	q.ip = clients.Addr(&r)
}

// Attribute returns what rules ask for.
func (q *request) Attribute(f *rules.Field) (string, rules.Presence) {
	switch f.Kind {
	case rules.FieldMethod:
		return q.method, presentIf(q.method != "")
	case rules.FieldHost:
		return q.hostValue()
	case rules.FieldPath:
		// Some applications take what is behind a semicolon for part of the name and others for parameters, which rules
		// do not see. Escaped, it is refused.
		if strings.IndexByte(q.path, ';') >= 0 {
			return strings.ReplaceAll(q.path, ";", "%3B"), rules.Present
		}
		return q.path, presentIf(q.path != "")
	case rules.FieldHeader:
		return q.header(f)
	case rules.FieldQuery:
		return q.parameter(rules.FieldQuery, f.Name)
	case rules.FieldCookie:
		return q.cookie(f.Name)
	case rules.FieldBasicUser:
		return q.basicUser()
	default:
		return q.named(f.Kind, f.Name)
	}
}

func presentIf(ok bool) rules.Presence {
	if ok {
		return rules.Present
	}
	return rules.Absent
}

// named is the value of a name, which is ambiguous if there are several.
func (q *request) named(k rules.FieldKind, name string) (value string, found rules.Presence) {
	for i := range q.pairs {
		p := &q.pairs[i]
		if p.kind != k || p.name != name {
			continue
		}
		if found == rules.Present {
			return "", rules.Ambiguous
		}
		value, found = p.value, rules.Present
	}
	return value, found
}

// parameter returns the value of a query parameter or cookie, whose name is written in any case. A name that some
// applications take for the same makes it ambiguous.
func (q *request) parameter(k rules.FieldKind, name string) (value string, found rules.Presence) {
	for i := range q.pairs {
		p := &q.pairs[i]
		if p.kind != k {
			continue
		}
		switch isIt := strings.EqualFold(p.name, name); {
		case !isIt && pairs.Confused(p.name, name), isIt && found == rules.Present:
			return "", rules.Ambiguous
		case isIt:
			value, found = p.value, rules.Present
		}
	}
	return value, found
}

// header is the value of a header, whose name is written in any case. A name that some applications take for the same
// makes it ambiguous.
func (q *request) header(f *rules.Field) (value string, found rules.Presence) {
	if f.Name == "Host" {
		value, found = q.hostValue()
		return strings.ToLower(value), found
	}
	for i := range q.pairs {
		p := &q.pairs[i]
		if p.kind != rules.FieldHeader {
			continue
		}
		switch {
		case !strings.EqualFold(p.name, f.Name):
			for _, variant := range f.Variants {
				if strings.EqualFold(p.name, variant) {
					return "", rules.Ambiguous
				}
			}
		case found == rules.Present:
			return "", rules.Ambiguous
		default:
			value, found = p.value, rules.Present
		}
	}
	return value, found
}

// hostValue is the host, or what the header of that name says. The two must agree.
func (q *request) hostValue() (string, rules.Presence) {
	host := q.host
	for i := range q.pairs {
		p := &q.pairs[i]
		if p.kind != rules.FieldHeader || !strings.EqualFold(p.name, "Host") || p.value == "" {
			continue
		}
		if host != "" && !strings.EqualFold(host, p.value) {
			return "", rules.Ambiguous
		}
		host = p.value
	}
	return host, presentIf(host != "")
}

// cookie is the value of a cookie, which is ambiguous if there are several of the name. Without cookies those of the
// header count.
func (q *request) cookie(name string) (string, rules.Presence) {
	if q.has&(1<<rules.FieldCookie) != 0 {
		value, found := q.parameter(rules.FieldCookie, name)
		value, ok := pairs.CookieValue(value)
		if !ok {
			return "", rules.Ambiguous
		}
		return value, found
	}
	value, n := pairs.Cookie(q.lines("Cookie"), name)
	return value, rules.Presence(n) // Absent, Present, Ambiguous
}

// basicUser is the user of basic authentication.
func (q *request) basicUser() (string, rules.Presence) {
	lines := q.lines("Authorization")
	if len(lines) > 1 {
		return "", rules.Ambiguous
	}
	r := http.Request{Header: http.Header{"Authorization": lines}}
	user, _, ok := r.BasicAuth()
	return user, presentIf(ok)
}

// lines are the values of a header.
func (q *request) lines(name string) (all []string) {
	for i := range q.pairs {
		if p := &q.pairs[i]; p.kind == rules.FieldHeader && strings.EqualFold(p.name, name) {
			all = append(all, p.value)
		}
	}
	return all
}
