package admincli

import (
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/sluiceproject/sluice/cmd/internal/operate/adminclient"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
	"github.com/sluiceproject/sluice/cmd/internal/rulework/sample"
	"github.com/sluiceproject/sluice/rules"
)

// Described is the part of an HTTP request that flags set: all except the method and the URL.
type Described struct {
	Headers    []string // Name: value
	Cookies    []string // name=value; Claims and Attributes too
	Claims     []string
	Attributes []string
	IP         string
}

// Given reports whether any field is set.
func (d *Described) Given() bool {
	return len(d.Headers)+len(d.Cookies)+len(d.Claims)+len(d.Attributes) > 0 || d.IP != ""
}

// HTTP returns the request with the method and URL in line: "POST /posts".
func (d *Described) HTTP(line string) (*sample.HTTP, error) {
	h, err := sample.ParseSend(line)
	if err != nil {
		return nil, err
	}
	for _, line := range d.Headers {
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return nil, fmt.Errorf("-H %q: write 'Name: value'", line)
		}
		if err := h.AddHeader(strings.TrimSpace(name), strings.TrimSpace(value)); err != nil {
			return nil, fmt.Errorf("-H: %w", err)
		}
	}
	cookies, err := Pairs("--cookie", d.Cookies)
	if err != nil {
		return nil, err
	}
	for _, p := range cookies {
		if err := h.AddCookie(p.Key, p.Value); err != nil {
			return nil, fmt.Errorf("--cookie: %w", err)
		}
	}
	if h.Claims, err = pairMap("--claim", d.Claims); err != nil {
		return nil, err
	}
	if h.Attributes, err = pairMap("--attr", d.Attributes); err != nil {
		return nil, err
	}
	if d.IP != "" {
		if h.Addr, err = netip.ParseAddr(d.IP); err != nil {
			return nil, fmt.Errorf("--ip %q: write an IP address, such as 192.0.2.1 or 2001:db8::1", d.IP)
		}
	}
	return h, nil
}

// Request returns the request as a body of the admin API.
func (d *Described) Request(line string) (*adminmsg.Request, error) {
	h, err := d.HTTP(line)
	if err != nil {
		return nil, err
	}
	r := &adminmsg.Request{Method: h.Method, URL: h.Target, IP: d.IP, Claims: h.Claims, Attributes: h.Attributes}
	if h.Host != "" {
		r.URL = "http://" + h.Host + h.Target
	}
	if r.Headers, err = onlyOnce("header", h.Header); err != nil {
		return nil, err
	}
	if len(h.Cookies) > 0 {
		all := make([]string, len(h.Cookies))
		for i, c := range h.Cookies {
			all[i] = c.Name + "=" + c.Value
		}
		r.Headers["Cookie"] = strings.Join(all, "; ")
	}
	return r, nil
}

// CheckAttributes returns the request as a body of the check API.
func (d *Described) CheckAttributes(line string) (*adminclient.Attributes, error) {
	h, err := d.HTTP(line)
	if err != nil {
		return nil, err
	}
	path, query, _ := strings.Cut(h.Target, "?")
	a := &adminclient.Attributes{
		Method: h.Method, Path: path, Host: h.Host, IP: d.IP, Claims: h.Claims, Attributes: h.Attributes,
	}
	if a.Query, err = url.ParseQuery(query); err != nil {
		return nil, fmt.Errorf("query %q: %w", query, err)
	}
	a.Headers, a.Cookies = byName(h.Header), byName(h.Cookies)
	return a, nil
}

func byName(fields []sample.Field) map[string][]string {
	m := make(map[string][]string, len(fields))
	for _, f := range fields {
		m[f.Name] = append(m[f.Name], f.Value)
	}
	return m
}

// onlyOnce returns headers by name for the admin API. It returns an error for a repeated name, which the API cannot express.
func onlyOnce(what string, fields []sample.Field) (map[string]string, error) {
	m := make(map[string]string, len(fields))
	for _, f := range fields {
		if _, again := m[f.Name]; again {
			return nil, fmt.Errorf("the %s %s is given twice: write its values once, separated by commas", what, f.Name)
		}
		m[f.Name] = f.Value
	}
	return m, nil
}

// Pairs parses arguments of the form name=value.
func Pairs(flag string, args []string) ([]rules.Entry, error) {
	var all []rules.Entry
	for _, arg := range args {
		name, value, ok := strings.Cut(arg, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("%s %q: write name=value", flag, arg)
		}
		all = append(all, rules.Entry{Key: name, Value: value})
	}
	return all, nil
}

// KeyPairs parses the parts of a key, each name=value. A name that contains = is quoted like a Go string, as bucketText
// writes it.
func KeyPairs(what string, args []string) ([]rules.Entry, error) {
	var all []rules.Entry
	for _, arg := range args {
		quoted, err := strconv.QuotedPrefix(arg)
		value, ok := strings.CutPrefix(arg[len(quoted):], "=")
		if err != nil || arg[0] != '"' || !ok {
			pair, err := Pairs(what, []string{arg})
			if err != nil {
				return nil, err
			}
			all = append(all, pair...)
			continue
		}
		if name, _ := strconv.Unquote(quoted); name != "" && !hasQuotes(name) {
			quoted = name
		}
		all = append(all, rules.Entry{Key: quoted, Value: value})
	}
	return all, nil
}

// hasQuotes reports whether the service writes the name of a key part in quotes.
func hasQuotes(name string) bool {
	return strings.ContainsRune(`"(~`, rune(name[0])) || !utf8.ValidString(name) ||
		strings.ContainsFunc(name, func(r rune) bool { return !strconv.IsPrint(r) })
}

func pairMap(flag string, args []string) (map[string]string, error) {
	all, err := Pairs(flag, args)
	m := make(map[string]string, len(all))
	for _, p := range all {
		m[p.Key] = p.Value
	}
	return m, err
}

// Descriptors parses the arguments after --domain: entries key=value, with + between descriptors.
func Descriptors(domain string, args []string) ([][]rules.Entry, error) {
	all := [][]rules.Entry{nil}
	for _, arg := range args {
		if arg == "+" {
			all = append(all, nil)
			continue
		}
		entry, err := Pairs("--domain "+domain, []string{arg})
		if err != nil {
			return nil, err
		}
		last := &all[len(all)-1]
		*last = append(*last, entry...)
	}
	return all, nil
}

// Entries returns the entries of a descriptor as the APIs take them.
func Entries(d []rules.Entry) []adminmsg.Entry {
	all := make([]adminmsg.Entry, len(d))
	for i, e := range d {
		all[i] = adminmsg.Entry(e)
	}
	return all
}

// Explain returns the body of POST /v1/explain for a request or, if domain is not empty, for descriptors.
func Explain(d *Described, domain string, args []string, cost int64) (body adminmsg.Explain, err error) {
	body = adminmsg.Explain{Domain: domain, Cost: cost}
	if domain == "" {
		body.Request, err = d.Request(strings.Join(args, " "))
		return body, err
	}
	body.Descriptors, err = DescriptorsOf(domain, args)
	return body, err
}

// DescriptorsOf parses the arguments after --domain into descriptors as the APIs take them.
func DescriptorsOf(domain string, args []string) (all [][]adminmsg.Entry, err error) {
	read, err := Descriptors(domain, args)
	for _, d := range read {
		all = append(all, Entries(d))
	}
	return all, err
}
