package checkapi

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/edge/rls"
	"github.com/sluiceproject/sluice/internal/private"
	"github.com/sluiceproject/sluice/rules"
)

// OpenAPI is the OpenAPI file.
var OpenAPI = openapi

// Routes returns the operations of the handler, such as "POST /v1/check".
func Routes() (all []string) {
	for _, r := range routes {
		all = append(all, r.method+" "+r.path)
	}
	slices.Sort(all)
	return all
}

// ParseRequest parses the request of a check.
func ParseRequest(body []byte) (rules.Request, error) {
	p := parser{bounds: rls.Bounds{}.WithDefaults()}
	if f := p.parse(body, checkBody); f != nil {
		return nil, f
	}
	return &p.checks[0].request, nil
}

// Plain is a body of checks, for encoding/json.
type Plain struct {
	plainCheck
	Checks []plainCheck `json:"checks,omitempty"`
}

type plainCheck struct {
	Attributes  *plainAttributes `json:"attributes,omitempty"`
	Domain      string           `json:"domain,omitempty"`
	Descriptors [][]plainEntry   `json:"descriptors,omitempty"`
	Cost        *int64           `json:"cost,omitempty"`
	Peek        bool             `json:"peek,omitempty"`
}

type plainEntry struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

type plainAttributes struct {
	Method     string            `json:"method,omitempty"`
	Path       string            `json:"path,omitempty"`
	Host       string            `json:"host,omitempty"`
	IP         string            `json:"ip,omitempty"`
	Headers    map[string]texts  `json:"headers,omitempty"`
	Query      map[string]texts  `json:"query,omitempty"`
	Cookies    map[string]texts  `json:"cookies,omitempty"`
	Claims     map[string]string `json:"claims,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
}

// texts is a string or a list of strings.
type texts []string

func (t *texts) UnmarshalJSON(b []byte) error {
	if b[0] == '[' {
		return json.Unmarshal(b, (*[]string)(t))
	}
	*t = texts{""}
	return json.Unmarshal(b, &(*t)[0])
}

// Normal returns the body in a canonical form, so that equivalent bodies are equal.
func (p Plain) Normal() Plain {
	all := p.Checks
	if len(all) == 0 {
		all = []plainCheck{p.plainCheck}
	}
	for i := range all {
		a := all[i].Attributes
		if a == nil {
			continue
		}
		if addr, err := netip.ParseAddr(a.IP); err == nil {
			a.IP = addr.String()
		}
		for _, values := range a.Headers {
			for j := range values {
				values[j] = strings.Trim(values[j], " \t")
			}
		}
	}
	return Plain{Checks: all}
}

// Parse parses a body of checks.
func Parse(body []byte) (Plain, error) {
	p := parser{bounds: rls.Bounds{}.WithDefaults()}
	if f := p.parse(body, checkBody); f != nil {
		return Plain{}, f
	}
	var plain Plain
	for i := range p.checks {
		plain.Checks = append(plain.Checks, p.checks[i].plain())
	}
	return plain, nil
}

func (c *check) plain() plainCheck {
	to := plainCheck{Domain: c.domain, Peek: c.peek}
	if c.hasCost {
		to.Cost = &c.cost
	}
	for _, d := range c.descriptors {
		entries := []plainEntry{}
		for _, e := range d.Entries {
			entries = append(entries, plainEntry(e))
		}
		to.Descriptors = append(to.Descriptors, entries)
	}
	if c.domain != "" {
		return to
	}
	q := &c.request
	a := &plainAttributes{Method: q.method, Path: q.path, Host: q.host}
	if q.ip.IsValid() {
		a.IP = q.ip.String()
	}
	for _, p := range q.pairs {
		switch p.kind {
		case rules.FieldHeader:
			put(&a.Headers, p)
		case rules.FieldQuery:
			put(&a.Query, p)
		case rules.FieldCookie:
			put(&a.Cookies, p)
		case rules.FieldClaim:
			putOne(&a.Claims, p)
		case rules.FieldAttr:
			putOne(&a.Attributes, p)
		}
	}
	to.Attributes = a
	return to
}

func put(to *map[string]texts, p pair) {
	if *to == nil {
		*to = map[string]texts{}
	}
	(*to)[p.name] = append((*to)[p.name], p.value)
}

func putOne(to *map[string]string, p pair) {
	if *to == nil {
		*to = map[string]string{}
	}
	(*to)[p.name] = p.value
}

var testTokens = newTokens([]byte("of tests"))

// ReadToken decodes a token in Base64.
func ReadToken(text string, now time.Time) error {
	_, err := testTokens.read(text, now)
	return err
}

// ReadAuthentic decodes a payload as if it had a valid MAC.
func ReadAuthentic(payload []byte, now time.Time) error {
	return ReadToken(encoding.EncodeToString(append(payload[:len(payload):len(payload)], testTokens.mac(payload)...)), now)
}

// RoundTrip encodes and decodes a reservation and returns an error if it changed.
func RoundTrip(rule, key, slot string, at, charged int64, fixed bool, now time.Time) error {
	was := &reservation{expires: now.Add(time.Millisecond), id: [16]byte{7: 7}}
	for i := range 2 {
		was.takes = append(was.takes, reserved{
			rule: rule, key: key, hashTag: slot, identity: 5, limit: 1 << 63, at: at, charged: charged, fixed: fixed,
			of: at ^ charged, marked: fixed == (i == 0), process: uint64(i) * uint64(at),
		})
	}
	is, err := testTokens.read(string(testTokens.write(nil, was)), now)
	if err != nil {
		if len(rule)+len(key)+len(slot) > maxToken/3 {
			return nil
		}
		return err
	}
	if !is.expires.Equal(was.expires) || is.id != was.id || !slices.Equal(is.takes, was.takes) {
		return fmt.Errorf("%+v is decoded as %+v", was, is)
	}
	return nil
}

// TokenHead is the size of a token without takes and MAC.
const TokenHead = tokenHead

// PayloadV1 returns a token of version 1 with one take, without its MAC.
func PayloadV1(id [16]byte, expires time.Time, rule, key string, limit *sluice.Limit, at, charged int64) []byte {
	b := binary.BigEndian.AppendUint64([]byte{1}, uint64(expires.UnixMilli()))
	b = append(append(b, id[:]...), 0)
	b = binary.AppendUvarint(b, private.ParamsOf(limit).Identity())
	b = binary.BigEndian.AppendUint64(b, limitDigest(limit))
	b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(at)), uint64(charged))
	for _, s := range []string{rule, key, ""} {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	return b
}

// Authentic returns the token of a payload with a valid MAC.
func (a *API) Authentic(payload []byte) string {
	return encoding.EncodeToString(append(payload[:len(payload):len(payload)], a.tokens.mac(payload)...))
}

// Payload returns a token with one take, without its MAC.
func Payload() []byte {
	r := &reservation{expires: time.UnixMilli(1), takes: []reserved{{rule: "rule", key: "key", hashTag: "slot", at: 1 << 60, charged: 300}}}
	b, _ := encoding.DecodeString(string(testTokens.write(nil, r))) // never fails: write has just encoded it
	return b[:len(b)-macSize]
}
