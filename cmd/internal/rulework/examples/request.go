package examples

import (
	"net/netip"
	"net/url"
	"strings"

	"github.com/sluiceproject/sluice/cmd/internal/rulework/sample"
	"github.com/sluiceproject/sluice/rules"
)

// value is the value of attributes of a rule's key.
const value = "example"

// newRequest returns a request that a rule matches, as far as possible: a regular expression and a negation name no
// value. The caller checks that the rule matches.
func newRequest(cfg *rules.Config, r *rules.Rule) *sample.HTTP {
	b := builder{cfg: cfg, query: url.Values{}, set: map[string]bool{}, http: &sample.HTTP{
		Method: "GET", Target: "/", Host: "api.example.com", Addr: netip.MustParseAddr("192.0.2.1"),
		Claims: map[string]string{}, Attributes: map[string]string{},
	}}
	for i := range r.Match.Predicates {
		p := &r.Match.Predicates[i]
		if text, ok := valueFor(p); ok {
			b.put(p.Ref.Name, text)
		}
	}
	for _, ref := range r.Per {
		b.put(ref.Name, value)
	}
	if len(b.query) > 0 {
		b.http.Target += "?" + b.query.Encode()
	}
	return b.http
}

// valueFor returns a value that matches a condition, if the condition names one.
func valueFor(p *rules.Predicate) (string, bool) {
	switch {
	case p.Not:
	case p.Present != nil:
		return value, *p.Present
	case len(p.Patterns) > 0:
		segments := strings.Split(p.Patterns[0], "/")
		for i, s := range segments {
			if strings.HasPrefix(s, "{") || s == "*" || s == "**" {
				segments[i] = "7"
			}
			segments[i] = strings.ReplaceAll(segments[i], "*", "7")
		}
		return strings.Join(segments, "/"), true
	case len(p.Values) > 0:
		return strings.Replace(p.Values[0], "*.", "www.", 1), true
	case len(p.Prefixes) > 0:
		return p.Prefixes[0] + value, true
	case len(p.Suffixes) > 0 && p.Ref.Name == "path":
		return "/" + value + p.Suffixes[0], true
	case len(p.Suffixes) > 0:
		return value + p.Suffixes[0], true
	}
	return "", false
}

type builder struct {
	cfg   *rules.Config
	http  *sample.HTTP
	query url.Values
	set   map[string]bool
}

// put sets the value of an attribute, unless it has one.
func (b *builder) put(ref, text string) {
	if b.set[ref] {
		return
	}
	b.set[ref] = true
	kind, name, _ := strings.Cut(ref, ":")
	switch kind {
	case "method":
		b.http.Method = strings.ToUpper(text)
	case "host":
		b.http.Host = text
	case "path":
		if name == "" {
			b.http.Target = text
		}
	case "ip":
		if p, err := netip.ParsePrefix(text); err == nil {
			b.http.Addr = p.Addr().Next()
		} else if a, err := netip.ParseAddr(text); err == nil {
			b.http.Addr = a
		}
	case "header":
		_ = b.http.AddHeader(name, text) // a value that cannot be sent does not match
	case "query":
		b.query.Set(name, text)
	case "cookie":
		_ = b.http.AddCookie(name, text)
	case "claim", "jwt":
		b.http.Claims[name] = text
	case "attr":
		b.http.Attributes[name] = text
	default:
		b.putDeclared(ref, text)
	}
}

func (b *builder) putDeclared(name, text string) {
	for i := range b.cfg.Attributes {
		if a := &b.cfg.Attributes[i]; a.Name == name && len(a.Sources) > 0 {
			b.put(a.Sources[0].Name, text)
			return
		}
	}
}
