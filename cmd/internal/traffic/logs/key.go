package logs

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/sluiceproject/sluice/internal/keyenc"
)

// KeyFunc returns the key of a request. ok is false if the request does not have all parts of the key.
type KeyFunc func(e *Entry) (key string, ok bool)

// keyForms describes the expressions of [ParseKey] in error messages.
const keyForms = "ip, ip/24, forwarded, user, host, path, method, header:NAME, field:NAME, or several joined by +, such as ip+header:X-Api-Key"

// ParseKey parses a key expression: one part, or several joined by +.
//
//	ip          the client IP: IPv4 addresses, IPv6 by /64, and host names
//	ip/24       IPv4 by /24; a number above 32 is the prefix of IPv6
//	forwarded   as ip, only for requests that a trusted proxy forwarded; forwarded/24
//	user, host, path, method
//	header:X-Api-Key, field:tenant
//
// Different requests never share a key unless all their parts are equal.
func ParseKey(expr string) (KeyFunc, error) {
	var parts []KeyFunc
	for _, text := range strings.Split(expr, "+") {
		part, err := parsePart(text)
		if err != nil {
			return nil, fmt.Errorf("key %q: %w", expr, err)
		}
		parts = append(parts, part)
	}
	if len(parts) == 1 {
		return func(e *Entry) (string, bool) {
			v, ok := parts[0](e)
			return keyenc.Value(v), ok
		}, nil
	}
	var key []byte
	return func(e *Entry) (string, bool) {
		key = keyenc.AppendSeveral(key[:0])
		for _, part := range parts {
			v, ok := part(e)
			if !ok {
				return "", false
			}
			key = keyenc.AppendPart(key, keyenc.Value(v))
		}
		return string(key), true
	}, nil
}

func parsePart(text string) (KeyFunc, error) {
	kind, name, named := strings.Cut(text, ":")
	switch {
	case named && name == "":
	case kind == "header" && named:
		return func(e *Entry) (string, bool) { return e.Header(name) }, nil
	case kind == "field" && named:
		return func(e *Entry) (string, bool) { return e.Field(name) }, nil
	case named:
	case text == "user":
		return func(e *Entry) (string, bool) { return e.Record.User, e.Record.User != "" }, nil
	case text == "host":
		return func(e *Entry) (string, bool) { return e.Record.Host, e.Record.Host != "" }, nil
	case text == "path":
		return func(e *Entry) (string, bool) { return e.Record.Path, e.Record.Path != "" }, nil
	case text == "method":
		return func(e *Entry) (string, bool) { return e.Record.Method, e.Record.Method != "" }, nil
	default:
		return parseAddrPart(text)
	}
	return nil, fmt.Errorf("%q is not a part of a key: write %s", text, keyForms)
}

// parseAddrPart parses ip, ip/24, forwarded and forwarded/24.
func parseAddrPart(text string) (KeyFunc, error) {
	kind, prefix, shorter := strings.Cut(text, "/")
	if kind != "ip" && kind != "forwarded" {
		return nil, fmt.Errorf("%q is not a part of a key: write %s", text, keyForms)
	}
	bits4, bits6 := 32, 64
	if shorter {
		n, err := strconv.Atoi(prefix)
		switch {
		case err != nil || n < 1 || n > 128:
			return nil, fmt.Errorf("%q: write a prefix length, such as %s/24 for IPv4 or %s/48 for IPv6", text, kind, kind)
		case n <= 32:
			bits4 = n
		default:
			bits6 = n
		}
	}
	return func(e *Entry) (string, bool) {
		switch {
		case kind == "forwarded" && !e.forwarded:
			return "", false
		case e.ClientName != "":
			return e.ClientName, true
		}
		return addrKey(e.Record.Client, bits4, bits6)
	}, nil
}

func addrKey(a netip.Addr, bits4, bits6 int) (string, bool) {
	a = a.WithZone("").Unmap()
	if !a.IsValid() {
		return "", false
	}
	if a.Is4() && bits4 < 32 {
		p, _ := a.Prefix(bits4) // valid: 1 to 31 bits
		return p.String(), true
	}
	return string(keyenc.AppendAddr(nil, a, bits6)), true
}

// KeyPart is a part of a key. Its value is personal data: reports print Masked.
type KeyPart struct{ Name, Value string }

// KeyParts returns the parts of a key of the function that [ParseKey] returned for expr.
func KeyParts(expr, key string) []KeyPart {
	names, values := strings.Split(expr, "+"), []string{key}
	if len(names) > 1 {
		values, _ = keyenc.Split(key)
	}
	var all []KeyPart
	for i, v := range values {
		if i < len(names) {
			v, _, _ = keyenc.Read(v)
			all = append(all, KeyPart{names[i], v})
		}
	}
	return all
}

// Masked returns the part with most of its value hidden: the network of an address, at most two characters of anything
// else. Different values may be equal when masked.
func (p KeyPart) Masked() string {
	text, _, _ := strings.Cut(p.Value, "/")
	a, err := netip.ParseAddr(text)
	switch {
	case err == nil && a.Is4():
		b := a.As4()
		return fmt.Sprintf("%s=%d.%d.*.*", p.Name, b[0], b[1])
	case err == nil:
		network, _ := a.WithZone("").Prefix(32) // IPv6 here
		return p.Name + "=" + strings.TrimSuffix(network.Addr().String(), "::") + ":*"
	}
	n := 0
	for i := range p.Value {
		if n++; n > 2 {
			return p.Name + "=" + p.Value[:i] + "*"
		}
	}
	if utf8.RuneCountInString(p.Value) <= 2 { // too short to show any of it
		return p.Name + "=*"
	}
	return p.Name + "=" + p.Value
}
