package simulate

import (
	"net/netip"
	"strings"

	"github.com/sluiceproject/sluice/cmd/internal/operate/accesslog"
	"github.com/sluiceproject/sluice/internal/pairs"
	"github.com/sluiceproject/sluice/rules"
)

// request is a line of a log as rules look at it.
type request struct {
	record *accesslog.Record
	user   *rules.Field // that the log's user is, beside attr:user and basic_user; may be nil
}

var _ rules.Request = (*request)(nil)

func (q *request) Addr() netip.Addr { return q.record.Client }

func (q *request) Attribute(f *rules.Field) (string, rules.Presence) {
	value := ""
	switch known(f, q.user) {
	case hasMethod:
		value = q.record.Method
	case hasHost:
		value = q.record.Host
	case hasPath:
		return path(q.record.Path), rules.Present
	case hasQuery:
		value, n := pairs.Query(q.record.Query, f.Name)
		return value, rules.Presence(n) // Absent, Present, Ambiguous
	case hasUser:
		value = q.record.User
	case hasPlan:
		value = q.record.Plan
	case hasReferer:
		value = q.record.Referer
	case hasAgent:
		value = q.record.UserAgent
	}
	if value == "" {
		return "", rules.Absent
	}
	return value, rules.Present
}

// facts are what a log may hold, as a set.
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

// known is what in a log tells a field, or 0 if nothing does.
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

// factsOf is what a line tells.
func factsOf(r *accesslog.Record) (all facts) {
	all = hasMethod | hasPath
	for _, f := range [...]struct {
		is    bool
		facts facts
	}{
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

// path is the path of a target that may be a whole URL, as clients of proxies send it.
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
