package simulate

import (
	"net/netip"
	"strings"

	"github.com/sluiceproject/sluice/cmd/internal/operate/accesslog"
	"github.com/sluiceproject/sluice/cmd/internal/traffic/logs"
	"github.com/sluiceproject/sluice/internal/pairs"
	"github.com/sluiceproject/sluice/rules"
)

// request is a line of a log as a [rules.Request].
type request struct {
	entry *logs.Entry
	user  *rules.Field // further field with the user of the line, in addition to attr:user and basic_user; may be nil
}

var _ rules.Request = (*request)(nil)

func (q *request) Addr() netip.Addr { return q.entry.Record.Client }

func (q *request) Attribute(f *rules.Field) (string, rules.Presence) {
	value, record := "", &q.entry.Record
	switch known(f, q.user) {
	case hasMethod:
		value = record.Method
	case hasHost:
		value = record.Host
	case hasPath:
		return path(record.Path), rules.Present
	case hasQuery:
		value, n := pairs.Query(record.Query, f.Name)
		return value, rules.Presence(n) // Absent, Present, Ambiguous
	case hasUser:
		value = record.User
	case hasPlan:
		value = record.Plan
	case hasReferer:
		value = record.Referer
	case hasAgent:
		value = record.UserAgent
	default:
		value, _ = fieldValue(q.entry, f)
	}
	if value == "" {
		return "", rules.Absent
	}
	return value, rules.Present
}

// fieldValue returns the value of a header or field that only some formats contain.
func fieldValue(e *logs.Entry, f *rules.Field) (string, bool) {
	switch f.Kind {
	case rules.FieldHeader:
		return e.Header(f.Name)
	case rules.FieldAttr, rules.FieldClaim:
		return e.Field(f.Name)
	case rules.FieldCookie:
		return e.Field("cookie_" + f.Name)
	}
	return "", false
}

// facts is a set of fields of a log.
type facts uint16

const (
	hasMethod facts = 1 << iota
	hasHost
	hasPath
	hasQuery
	hasUser
	hasPlan
	hasReferer
	hasAgent
	hasClient
)

// known returns the field of a log that contains f, or 0 if none does.
func known(f, user *rules.Field) facts {
	if user != nil && f.Kind == user.Kind && f.Name == user.Name {
		return hasUser
	}
	switch f.Kind {
	case rules.FieldMethod:
		return hasMethod
	case rules.FieldHost:
		return hasHost
	case rules.FieldPath:
		return hasPath
	case rules.FieldQuery:
		return hasQuery
	case rules.FieldBasicUser:
		return hasUser
	case rules.FieldAttr:
		switch f.Name {
		case "user":
			return hasUser
		case "plan":
			return hasPlan
		}
	case rules.FieldHeader:
		switch f.Name {
		case "Referer":
			return hasReferer
		case "User-Agent":
			return hasAgent
		}
	}
	return 0
}

// factsOf returns the fields that a line contains.
func factsOf(r *accesslog.Record) (all facts) {
	for _, f := range [...]struct {
		is    bool
		facts facts
	}{
		{r.Method != "", hasMethod},
		{r.Path != "", hasPath},
		{r.Host != "", hasHost},
		{r.Query != "", hasQuery},
		{r.User != "", hasUser},
		{r.Plan != "", hasPlan},
		{r.Referer != "", hasReferer},
		{r.UserAgent != "", hasAgent},
		{r.Client.IsValid(), hasClient},
	} {
		if f.is {
			all |= f.facts
		}
	}
	return all
}

// path returns the path of a request target, which may be an absolute URL, as sent to proxies.
func path(target string) string {
	for _, scheme := range []string{"http://", "https://"} {
		if rest, ok := strings.CutPrefix(target, scheme); ok {
			if i := strings.IndexByte(rest, '/'); i >= 0 {
				return rest[i:]
			}
			return "/"
		}
	}
	return target
}
