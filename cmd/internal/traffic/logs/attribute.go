package logs

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// attribute is an attribute of a request that a field of a log contains.
type attribute uint8

const (
	attrTime  attribute = iota // end of the request, if there is a duration
	attrStart                  // start of the request
	attrDuration
	attrDurationMillis
	attrDurationMicros
	attrDurationNanos
	attrIP
	attrUser
	attrPlan
	attrMethod
	attrHost
	attrPath // path with or without a query, or a URL
	attrQuery
	attrRequest // GET /path HTTP/1.1
	attrProto
	attrStatus
	attrBytesIn
	attrBytesOut
	attrReferer
	attrUserAgent
	attrCost
	attributes
)

var attributeNames = [attributes]string{
	"time", "start", "duration", "duration_ms", "duration_us", "duration_ns", "ip", "user", "plan", "method", "host", "path", "query",
	"request", "proto", "status", "bytes_in", "bytes_out", "referer", "user_agent", "cost",
}

// set sets the attribute from the value of a field. Values that are not valid are left out, except times.
func (a attribute) set(e *Entry, v string) error {
	if v == "" || v == "-" || v == "null" {
		return nil
	}
	r := &e.Record
	switch a {
	case attrTime, attrStart:
		t, err := parseTime(v)
		if err != nil {
			return err
		}
		r.Time, e.isStart = t, a == attrStart
	case attrDuration, attrDurationMillis, attrDurationMicros, attrDurationNanos:
		if d, err := parseDuration(v, [...]time.Duration{time.Second, time.Millisecond, time.Microsecond, 1}[a-attrDuration]); err == nil {
			r.Duration = d
		}
	case attrIP:
		e.setClient(v)
	case attrPath:
		e.setTarget(v)
	case attrRequest:
		_ = e.setRequest(v) // not HTTP: a request without a path
	case attrStatus:
		if n, err := strconv.Atoi(v); err == nil && n >= 0 && n <= 999 {
			r.Status = n
		}
	case attrBytesIn:
		r.BytesIn, _ = whole(v)
	case attrBytesOut:
		r.BytesOut, _ = whole(v)
	case attrCost: // read by Entry.Cost
	default:
		*a.text(e) = v
	}
	return nil
}

// text returns the field of the record for an attribute that is text.
func (a attribute) text(e *Entry) *string {
	r := &e.Record
	switch a {
	case attrUser:
		return &r.User
	case attrPlan:
		return &r.Plan
	case attrMethod:
		return &r.Method
	case attrHost:
		return &r.Host
	case attrQuery:
		return &r.Query
	case attrProto:
		return &r.Proto
	case attrReferer:
		return &r.Referer
	}
	return &r.UserAgent
}

// setTarget sets path and query from a request target, which may be a URL. Its host is the host if no other is known.
func (e *Entry) setTarget(target string) {
	for _, scheme := range []string{"http://", "https://", "ws://", "wss://"} {
		if rest, ok := strings.CutPrefix(target, scheme); ok {
			host, path := rest, "/"
			if i := strings.IndexAny(rest, "/?"); i >= 0 {
				host, path = rest[:i], rest[i:]
			}
			if e.Record.Host == "" {
				e.Record.Host = host
			}
			target = path
			break
		}
	}
	path, query, hasQuery := strings.Cut(target, "?")
	e.Record.Path = path
	if hasQuery {
		e.Record.Query = query
	}
}

// errRequest is returned for requests that are not HTTP, such as TLS on a port for HTTP.
var errRequest = errors.New("request without method and path: not HTTP, and so not subject to rules")

// setRequest sets method, target and protocol from "GET /posts?id=7 HTTP/1.1". A path may contain spaces.
func (e *Entry) setRequest(s string) error {
	method, target, ok := strings.Cut(s, " ")
	if !ok || method == "" {
		return errRequest
	}
	if i := strings.LastIndexByte(target, ' '); i >= 0 && strings.HasPrefix(target[i+1:], "HTTP/") {
		target, e.Record.Proto = target[:i], target[i+1:]
	}
	e.Record.Method = method
	e.setTarget(target)
	return nil
}

// column maps an attribute to a field by name.
type column struct {
	attribute attribute
	field     string
}

// parseColumns parses Options.Columns: time=TIMESTAMP,ip=client.address.
func parseColumns(text string) (all []column, err error) {
	if text == "" {
		return nil, nil
	}
	for _, one := range strings.Split(text, ",") {
		name, field, ok := strings.Cut(one, "=")
		i := slices.Index(attributeNames[:], name)
		switch {
		case !ok || field == "":
			return nil, fmt.Errorf("columns: %q: write ATTRIBUTE=COLUMN, such as time=TIMESTAMP", one)
		case i < 0:
			return nil, fmt.Errorf("columns: %q: unknown attribute: use one of %s", name, strings.Join(attributeNames[:], ", "))
		case slices.ContainsFunc(all, func(c column) bool { return c.attribute == attribute(i) }):
			return nil, fmt.Errorf("columns: %s is given twice", name)
		}
		all = append(all, column{attribute(i), field})
	}
	return all, nil
}

// synonyms contains names of fields in logs without a fixed format, lower case and without punctuation. Earlier names are
// preferred to later ones.
var synonyms = map[attribute]string{
	attrTime: "time timestamp ts datetime date eventtime logtime atimestamp msec timeiso8601 timelocal createdat created",
	attrStart: "start starttime startedat requeststart starttimestamp startutc arrival arrivaltime arrivaltimestamp arrivedat " +
		"eventstart",
	attrDuration:       "durationseconds durations elapsedseconds latencyseconds responsetimeseconds",
	attrDurationMillis: "durationms latencyms elapsedms responsetimems requesttimems tookms",
	attrDurationMicros: "durationus latencyus elapsedus durationmicros",
	attrDurationNanos:  "durationns latencyns elapsedns eventduration",
	attrIP: "clientip ip remoteaddr remoteip clientaddress clientaddr sourceip srcip clienthost client remotehost " +
		"httprequestremoteip sourceaddress requestremoteip requestip requestclientip requestremoteaddr cip",
	attrUser:      "user username userid useridentifier remoteuser usersub accountid csusername",
	attrPlan:      "plan tier",
	attrMethod:    "method requestmethod httpmethod httprequestmethod httprequestrequestmethod reqmethod verb csmethod",
	attrHost:      "host httphost requesthost authority servername hostname urldomain reqhost vhost cshost",
	attrPath:      "requesturi uri url path requestpath urlpath urloriginal httprequestrequesturl requesturl requestpath reqpath requrl target endpoint csuristem",
	attrQuery:     "query querystring urlquery args csuriquery",
	attrRequest:   "request requestline",
	attrProto:     "proto protocol httpversion serverprotocol",
	attrStatus:    "status statuscode responsestatus responsecode httpstatus httpstatuscode httpresponsestatuscode httprequeststatus resstatus responsestatuscode scstatus",
	attrBytesIn:   "bytesin requestbytes requestsize requestlength bytesreceived httprequestbytes csbytes",
	attrBytesOut:  "bytesout responsebytes responsesize bodybytessent bytessent httpresponsebytes size scbytes",
	attrReferer:   "referer referrer httpreferer",
	attrUserAgent: "useragent httpuseragent agent useragentoriginal httprequestuseragent",
	attrCost:      "cost",
}

// normalized returns a name in lower case and without punctuation, as in synonyms.
func normalized(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			return r
		case r == '@': // @timestamp
			return 'a'
		case r > 0x7f:
			return r
		}
		return -1
	}, name)
}

// slot is the attribute of a field, and its rank among the fields for that attribute: the lowest is used.
type slot struct {
	attribute attribute
	rank      uint8
}

// slotsOf returns the attributes of fields by name. Names are separated by spaces.
func slotsOf(names map[attribute]string) map[string]slot {
	all := map[string]slot{}
	for a := range attributes {
		for i, name := range strings.Fields(names[a]) {
			all[name] = slot{a, uint8(i + 1)}
		}
	}
	return all
}
