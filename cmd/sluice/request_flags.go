package main

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluiceproject/sluice/cmd/internal/operate/adminclient"
	"github.com/sluiceproject/sluice/cmd/internal/operate/adminmsg"
	"github.com/sluiceproject/sluice/cmd/internal/rulework/sample"
	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/rules"
)

// requestFlags describe an HTTP request, but for its method and URL.
type requestFlags struct {
	headers []string
	cookies []string
	claims  []string
	attrs   []string
	ip      string
}

func (f *requestFlags) flags(c *cobra.Command) {
	c.Flags().StringArrayVarP(&f.headers, "header", "H", nil, "header of the request, 'Name: value'; may be repeated")
	c.Flags().StringArrayVar(&f.cookies, "cookie", nil, "cookie, name=value; may be repeated")
	c.Flags().StringArrayVar(&f.claims, "claim", nil, "claim of a verified token, name=value; may be repeated")
	c.Flags().StringArrayVar(&f.attrs, "attr", nil, "attribute that the program sets, name=value; may be repeated")
	c.Flags().StringVar(&f.ip, "ip", "", "address of the connection's peer")
	for _, name := range []string{"header", "cookie", "claim", "attr", "ip"} {
		term.CompleteFlag(c, name)
	}
}

// given tells whether the request is described at all.
func (f *requestFlags) given() bool {
	return len(f.headers)+len(f.cookies)+len(f.claims)+len(f.attrs) > 0 || f.ip != ""
}

// request makes the HTTP request that the flags describe.
func (f *requestFlags) request(line string) (*sample.HTTP, error) {
	h, err := sample.ParseSend(line)
	if err != nil {
		return nil, err
	}
	for _, line := range f.headers {
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return nil, fmt.Errorf("-H %q: write 'Name: value'", line)
		}
		if err := h.AddHeader(strings.TrimSpace(name), strings.TrimSpace(value)); err != nil {
			return nil, fmt.Errorf("-H: %w", err)
		}
	}
	cookies, err := pairs("--cookie", f.cookies)
	if err != nil {
		return nil, err
	}
	for _, p := range cookies {
		if err := h.AddCookie(p.Key, p.Value); err != nil {
			return nil, fmt.Errorf("--cookie: %w", err)
		}
	}
	if h.Claims, err = pairMap("--claim", f.claims); err != nil {
		return nil, err
	}
	if h.Attributes, err = pairMap("--attr", f.attrs); err != nil {
		return nil, err
	}
	if f.ip != "" {
		if h.Addr, err = netip.ParseAddr(f.ip); err != nil {
			return nil, fmt.Errorf("--ip %q: write an address, such as 192.0.2.1 or 2001:db8::1", f.ip)
		}
	}
	return h, nil
}

// asked is the request as the admin API takes it.
func (f *requestFlags) asked(line string) (*adminmsg.Request, error) {
	h, err := f.request(line)
	if err != nil {
		return nil, err
	}
	r := &adminmsg.Request{Method: h.Method, URL: h.Target, IP: f.ip, Claims: h.Claims, Attributes: h.Attributes}
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

// attributes is the request as the check API takes it.
func (f *requestFlags) attributes(line string) (*adminclient.Attributes, error) {
	h, err := f.request(line)
	if err != nil {
		return nil, err
	}
	path, query, _ := strings.Cut(h.Target, "?")
	a := &adminclient.Attributes{
		Method: h.Method, Path: path, Host: h.Host, IP: f.ip, Claims: h.Claims, Attributes: h.Attributes,
	}
	if a.Query, err = url.ParseQuery(query); err != nil {
		return nil, fmt.Errorf("the query %q: %w", query, err)
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

// onlyOnce are headers as the service's API takes them: it has no place for a second of the same name.
func onlyOnce(what string, fields []sample.Field) (map[string]string, error) {
	m := make(map[string]string, len(fields))
	for _, f := range fields {
		if _, again := m[f.Name]; again {
			return nil, fmt.Errorf("the %s %s is there twice: write its values in one, with a comma between them", what, f.Name)
		}
		m[f.Name] = f.Value
	}
	return m, nil
}

// pairs reads arguments of the form name=value.
func pairs(flag string, args []string) ([]rules.Entry, error) {
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

func pairMap(flag string, args []string) (map[string]string, error) {
	all, err := pairs(flag, args)
	m := make(map[string]string, len(all))
	for _, p := range all {
		m[p.Key] = p.Value
	}
	return m, err
}

// descriptors reads the arguments after --domain: entries, and a + between descriptors.
func descriptors(domain string, args []string) ([][]rules.Entry, error) {
	all := [][]rules.Entry{nil}
	for _, arg := range args {
		if arg == "+" {
			all = append(all, nil)
			continue
		}
		entry, err := pairs("--domain "+domain, []string{arg})
		if err != nil {
			return nil, err
		}
		last := &all[len(all)-1]
		*last = append(*last, entry...)
	}
	return all, nil
}

// entries are a descriptor as the service's API takes it.
func entries(d []rules.Entry) []adminmsg.Entry {
	all := make([]adminmsg.Entry, len(d))
	for i, e := range d {
		all[i] = adminmsg.Entry(e)
	}
	return all
}
