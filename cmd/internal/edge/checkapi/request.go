package checkapi

import (
	"net/http"
	"net/netip"
	"strings"

	"github.com/sluiceproject/sluice/internal/clientip"
	"github.com/sluiceproject/sluice/internal/pairs"
	"github.com/sluiceproject/sluice/rules"
)

// request implements rules.Request for the attributes of a check. The result is the same as that of httplimit for the same
// HTTP request; a test compares the two. Attributes that the check leaves out are absent.
type request struct {
	method, path, host string     // empty if absent
	ip                 netip.Addr // address of the connection; after findClient, of the client
	pairs              []pair
	has                uint16 // bit set of the kinds of pairs in the body, including empty objects
}

// pair is a header, query parameter, cookie, claim or attribute. A name may occur several times.
type pair struct {
	kind        rules.FieldKind
	name, value string
}

var _ rules.Request = (*request)(nil)

// Addr returns the address of the client.
func (q *request) Addr() netip.Addr { return q.ip }

// findClient replaces the address of the connection by that of the client, as the middleware does: if the connection is
// from a trusted proxy, the address is taken from the proxy's header.
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

// Attribute returns the value of a field.
func (q *request) Attribute(f *rules.Field) (string, rules.Presence) {
	switch f.Kind {
	case rules.FieldMethod:
		return q.method, presentIf(q.method != "")
	case rules.FieldHost:
		return q.hostValue()
	case rules.FieldPath:
		// Applications treat the part after a semicolon as part of the name or as parameters, so the path is ambiguous. It is
		// rejected because the semicolon is escaped here.
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

// named returns the value of a name. Several values are ambiguous.
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

// parameter returns the value of a query parameter or cookie; names are case-insensitive. It is ambiguous if the request
// also has a name that some applications treat as the same.
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

// header returns the value of a header; names are case-insensitive. It is ambiguous if the request also has a name that
// some applications treat as the same.
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

// hostValue returns the host or the value of the Host header. It is ambiguous if they differ.
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

// cookie returns the value of a cookie. Several cookies of the name are ambiguous. If the body has no cookies field, the
// Cookie header is used.
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

// basicUser returns the user name of HTTP basic authentication.
func (q *request) basicUser() (string, rules.Presence) {
	lines := q.lines("Authorization")
	if len(lines) > 1 {
		return "", rules.Ambiguous
	}
	r := http.Request{Header: http.Header{"Authorization": lines}}
	user, _, ok := r.BasicAuth()
	return user, presentIf(ok)
}

// lines returns the values of a header.
func (q *request) lines(name string) (all []string) {
	for i := range q.pairs {
		if p := &q.pairs[i]; p.kind == rules.FieldHeader && strings.EqualFold(p.name, name) {
			all = append(all, p.value)
		}
	}
	return all
}
