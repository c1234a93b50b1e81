package logs

import (
	"errors"
	"strings"

	"github.com/sluiceproject/sluice/cmd/internal/jsonline"
	"github.com/sluiceproject/sluice/cmd/internal/operate/accesslog"
)

// jsonFields are the fields of JSON formats, by attribute; earlier names are preferred to later ones.
var (
	caddyFields = map[attribute]string{
		attrTime: "ts", attrDuration: "duration", attrIP: "request.client_ip request.remote_ip request.remote_addr", attrUser: "user_id",
		attrMethod: "request.method", attrHost: "request.host", attrPath: "request.uri", attrProto: "request.proto", attrStatus: "status",
		attrBytesIn: "bytes_read", attrBytesOut: "size", attrReferer: "request.headers.Referer", attrUserAgent: "request.headers.User-Agent",
	}
	traefikFields = map[attribute]string{
		attrTime: "time", attrStart: "StartUTC StartLocal", attrDurationNanos: "Duration", attrIP: "ClientHost ClientAddr", attrUser: "ClientUsername",
		attrMethod: "RequestMethod", attrHost: "RequestHost RequestAddr", attrPath: "RequestPath", attrProto: "RequestProtocol",
		attrStatus: "DownstreamStatus", attrBytesIn: "RequestContentSize", attrBytesOut: "DownstreamContentSize",
		attrReferer: "request_Referer", attrUserAgent: "request_User-Agent",
	}
	envoyFields = map[attribute]string{
		attrStart: "start_time", attrDurationMillis: "duration",
		attrIP:     "downstream_remote_address downstream_remote_address_without_port downstream_direct_remote_address client_ip x_forwarded_for x-forwarded-for",
		attrMethod: "method req_method :method", attrHost: "authority :authority host", attrPath: "path x-envoy-original-path req_path :path",
		attrProto: "protocol", attrStatus: "response_code", attrBytesIn: "bytes_received", attrBytesOut: "bytes_sent", attrReferer: "referer",
		attrUserAgent: "user_agent user-agent",
	}
	nginxFields = map[attribute]string{
		attrTime: "msec time_msec time_iso8601 time @timestamp timestamp time_local", attrDuration: "request_time", attrIP: "remote_addr",
		attrUser: "remote_user", attrMethod: "request_method method", attrHost: "http_host host server_name", attrRequest: "request",
		attrPath: "request_uri uri path", attrQuery: "args query_string", attrProto: "server_protocol", attrStatus: "status",
		attrBytesIn: "request_length", attrBytesOut: "body_bytes_sent bytes_sent", attrReferer: "http_referer http_referrer referer",
		attrUserAgent: "http_user_agent user_agent",
	}
)

// jsonParser reads lines with a JSON object each.
type jsonParser struct {
	slots  map[string]slot     // by name
	inner  map[string]struct{} // names of objects that contain such fields; nil if any may
	name   func(string) string // of a field, as in slots
	root   jsonNode
	nodes  int
	found  [attributes]string // name of the field last used for each attribute
	ranks  [attributes]uint8  // of the fields used in this line
	given  map[string]slot    // fields of Options.Columns, by their path
	strict bool               // lines must look like requests
}

// jsonNode is a field that occurred in the log, so that names are interpreted once.
type jsonNode struct {
	path, name string
	slot       slot
	isSlot     bool
	children   map[string]*jsonNode
}

const (
	maxNodes = 1 << 12 // different fields of a log; others are not attributes
	maxDepth = 8       // nested objects; deeper ones are skipped
)

// newPreset returns the parser of a format with known fields.
func newPreset(fields map[attribute]string) *jsonParser {
	p := &jsonParser{slots: slotsOf(fields), inner: map[string]struct{}{}, name: func(s string) string { return s }}
	for name := range p.slots {
		for i := strings.LastIndexByte(name, '.'); i > 0; i = strings.LastIndexByte(name[:i], '.') {
			p.inner[name[:i]] = struct{}{}
		}
	}
	return p
}

// newJSON returns the parser of any JSON objects. Fields are found by their names, or given.
func newJSON(given []column) *jsonParser {
	p := &jsonParser{slots: slotsOf(synonyms), name: normalized, given: map[string]slot{}, strict: len(given) == 0}
	for _, c := range given {
		p.given[c.field] = slot{attribute: c.attribute}
	}
	return p
}

var errNoTime = errors.New("no time")

func (p *jsonParser) parse(line string, e *Entry) error {
	p.ranks = [attributes]uint8{}
	s := jsonline.New(line)
	if err := p.object(s, &p.root, e, 0); err != nil {
		return err
	}
	if err := s.End(); err != nil {
		return err
	}
	switch r := &e.Record; {
	case r.Time.IsZero():
		return errNoTime
	case p.strict && r.Method == "" && r.Path == "" && r.Status == 0 && !r.Client.IsValid() && r.User == "":
		return errors.New("no field of a request: map them with --columns, such as time=ts,ip=peer")
	}
	return nil
}

func (p *jsonParser) object(s *jsonline.Scanner, at *jsonNode, e *Entry, depth int) error {
	return s.Object(func(name string) error { return p.value(s, p.child(at, name), e, depth) })
}

// value reads the value of a field. Of an array the first element counts.
func (p *jsonParser) value(s *jsonline.Scanner, n *jsonNode, e *Entry, depth int) error {
	switch c := s.Next(); {
	case c == '{' && n != nil && depth < maxDepth && p.isInner(n):
		return p.object(s, n, e, depth+1)
	case c == '[' && n != nil && n.isSlot:
		first := true
		return s.Array(func() error {
			if first && s.Next() != '{' && s.Next() != '[' {
				first = false
				return p.value(s, n, e, depth)
			}
			return skip(s)
		})
	case c == '{' || c == '[':
		return skip(s)
	}
	v, ok := s.Scalar()
	if !ok {
		return jsonline.ErrObject
	}
	if n == nil || !n.isSlot || v == "" || v == "-" || v == "null" {
		return nil
	}
	return p.set(e, n, v)
}

// set sets an attribute, unless a preferred field has set it.
func (p *jsonParser) set(e *Entry, n *jsonNode, v string) error {
	a := n.slot.attribute
	rank := n.slot.rank + 1 // 0 is none
	if p.ranks[a] != 0 && p.ranks[a] <= rank || a == attrTime && p.ranks[attrStart] != 0 {
		return nil
	}
	if err := a.set(e, v); err != nil {
		return err
	}
	p.ranks[a], p.found[a] = rank, n.path
	return nil
}

func skip(s *jsonline.Scanner) error {
	if _, ok := s.Raw(); !ok {
		return jsonline.ErrObject
	}
	return nil
}

func (p *jsonParser) isInner(n *jsonNode) bool {
	if p.inner == nil {
		return true
	}
	_, ok := p.inner[n.path]
	return ok
}

// child returns the node of a field, or nil if the log has too many different fields.
func (p *jsonParser) child(at *jsonNode, name string) *jsonNode {
	if at == nil {
		return nil
	}
	if n := at.children[name]; n != nil || p.nodes >= maxNodes || len(name) > maxHost {
		return n
	}
	name = strings.Clone(name)
	n := &jsonNode{path: name, name: p.name(name)}
	if at != &p.root {
		n.path = at.path + "." + name
		if n.name = at.name + n.name; p.inner != nil {
			n.name = n.path
		}
	}
	if n.slot, n.isSlot = p.given[n.path]; !n.isSlot {
		n.slot, n.isSlot = p.slots[n.name]
	}
	if at.children == nil {
		at.children = map[string]*jsonNode{}
	}
	at.children[name] = n
	p.nodes++
	return n
}

func (p *jsonParser) mapping() (all []column) {
	for a, path := range p.found {
		if path != "" {
			all = append(all, column{attribute(a), path})
		}
	}
	return all
}

func (p *jsonParser) fields(line string, add func(name, value string)) { jsonFields(line, add) }

// jsonFields calls add for each field of a line whose value is not an object. The elements of an array are joined by commas,
// as several lines of a header are.
func jsonFields(line string, add func(name, value string)) {
	s := jsonline.New(line)
	var walk func(prefix string, depth int) error
	walk = func(prefix string, depth int) error {
		return s.Object(func(name string) error {
			switch c := s.Next(); {
			case c == '{' && depth < maxDepth:
				return walk(prefix+name+".", depth+1)
			case c == '[':
				v, err := joined(s)
				add(prefix+name, v)
				return err
			case c == '{':
				return skip(s)
			}
			v, ok := s.Scalar()
			if !ok {
				return jsonline.ErrObject
			}
			if v != "null" {
				add(prefix+name, v)
			}
			return nil
		})
	}
	_ = walk("", 0) // the line was parsed before
}

// joined reads an array and joins its scalars.
func joined(s *jsonline.Scanner) (string, error) {
	var all []string
	err := s.Array(func() error {
		if c := s.Next(); c == '{' || c == '[' {
			return skip(s)
		}
		v, ok := s.Scalar()
		if !ok {
			return jsonline.ErrObject
		}
		all = append(all, v)
		return nil
	})
	return strings.Join(all, ", "), err
}

// sluiceParser reads the access log of the gateway.
type sluiceParser struct{}

func (sluiceParser) parse(line string, e *Entry) error {
	e.isStart = true
	return accesslog.ParseJSON(line, &e.Record)
}

func (sluiceParser) mapping() []column { return nil }

func (sluiceParser) fields(line string, add func(name, value string)) { jsonFields(line, add) }
