package sample

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/sluiceproject/sluice/httplimit"
)

// HTTP is an HTTP request.
type HTTP struct {
	Method     string
	Target     string  // path and query, escaped as in a request
	Host       string  // may be empty, unlike that of a real request
	Header     []Field // a name may occur more than once
	Cookies    []Field
	Claims     map[string]string
	Attributes map[string]string
	// Addr is the connection's peer. With the zero Addr, rules that count per address count such requests together.
	Addr netip.Addr
}

// Field is a header or a cookie.
type Field struct{ Name, Value string }

const sendHelp = `write METHOD PATH, such as "POST /posts?draft=1" or "GET https://api.example.com/posts"`

// ParseSend parses "POST /posts?draft=1" and "GET https://api.example.com/posts". The default method is GET.
func ParseSend(s string) (*HTTP, error) {
	method, target, found := strings.Cut(strings.TrimSpace(s), " ")
	if !found {
		method, target = http.MethodGet, method
	}
	return NewHTTP(method, strings.TrimSpace(target))
}

// NewHTTP returns a request for a path, or for a URL with a host.
func NewHTTP(method, target string) (*HTTP, error) {
	h := &HTTP{Method: method, Target: target}
	if !isToken(method) {
		return nil, fmt.Errorf("%q is not a method: %s", method, sendHelp)
	}
	for _, scheme := range []string{"http://", "https://"} {
		rest, ok := strings.CutPrefix(target, scheme)
		if !ok {
			continue
		}
		end := strings.IndexAny(rest, "/?")
		if end < 0 {
			rest, end = rest+"/", len(rest)
		}
		if h.Host, h.Target = rest[:end], rest[end:]; !isHost(h.Host) {
			return nil, fmt.Errorf("%q is not a host: %s", h.Host, sendHelp)
		}
		if strings.HasPrefix(h.Target, "?") {
			h.Target = "/" + h.Target
		}
	}
	switch {
	case !strings.HasPrefix(h.Target, "/"):
		return nil, fmt.Errorf("the path %q does not begin with a slash: %s", h.Target, sendHelp)
	case strings.ContainsAny(h.Target, " \t\r\n\x00"):
		return nil, fmt.Errorf("the path %q contains a space: escape it as %%20", h.Target)
	case strings.Contains(h.Target, "#"):
		return nil, fmt.Errorf("the path %q has a fragment, which no client sends: remove the # and the text after it", h.Target)
	}
	if _, err := url.ParseRequestURI(h.Target); err != nil {
		if at := (*url.Error)(nil); errors.As(err, &at) { // repeats the path
			err = at.Err
		}
		return nil, fmt.Errorf("the path %q is not valid: %w", h.Target, err)
	}
	return h, nil
}

// AddHeader adds a header after checking it.
func (h *HTTP) AddHeader(name, value string) error {
	switch {
	case !isToken(name):
		return fmt.Errorf("%q is not a header name", name)
	case strings.ContainsAny(value, "\r\n\x00"):
		return fmt.Errorf("the value of header %s contains a line break", name)
	case strings.EqualFold(name, "Host") && !isHost(value):
		return fmt.Errorf("%q is not a host", value)
	case strings.EqualFold(name, "Host"):
		h.Host = value
		return nil
	case strings.EqualFold(name, "Content-Length"), strings.EqualFold(name, "Transfer-Encoding"):
		return fmt.Errorf("the request has no body: remove %s", name)
	}
	h.Header = append(h.Header, Field{name, value})
	return nil
}

// AddCookie adds a cookie after checking it.
func (h *HTTP) AddCookie(name, value string) error {
	if !isToken(name) || strings.ContainsAny(value, "\r\n\x00;") {
		return fmt.Errorf("%q is not a cookie: write its name and a value without a semicolon", name+"="+value)
	}
	h.Cookies = append(h.Cookies, Field{name, value})
	return nil
}

func isHost(s string) bool {
	u, err := url.Parse("http://" + s)
	return err == nil && s != "" && u.Host == s
}

// isToken reports whether s is a token of RFC 9110.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}

// Request returns the request as a server gets it: it is written down and read by net/http, which changes some things.
func (h *HTTP) Request() (*http.Request, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\n", h.Method, h.Target)
	if h.Host != "" {
		fmt.Fprintf(&b, "Host: %s\r\n", h.Host)
	}
	for _, f := range h.Header {
		fmt.Fprintf(&b, "%s: %s\r\n", f.Name, f.Value)
	}
	for i, c := range h.Cookies {
		b.WriteString([...]string{"Cookie: ", "; "}[min(i, 1)])
		fmt.Fprintf(&b, "%s=%s", c.Name, c.Value)
	}
	if len(h.Cookies) > 0 {
		b.WriteString("\r\n")
	}
	b.WriteString("\r\n")
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(b.String())))
	if err != nil {
		return nil, fmt.Errorf("net/http does not accept the request %s: %w", h, err)
	}
	if h.Addr.IsValid() {
		r.RemoteAddr = netip.AddrPortFrom(h.Addr, 40000).String()
	}
	ctx := r.Context()
	if len(h.Claims) > 0 {
		ctx = httplimit.ContextWithClaims(ctx, h.Claims)
	}
	if len(h.Attributes) > 0 {
		ctx = httplimit.ContextWithAttributes(ctx, h.Attributes)
	}
	return r.WithContext(ctx), nil
}

// String writes method and target, with the host if there is one.
func (h *HTTP) String() string {
	if h.Host != "" {
		return h.Method + " http://" + h.Host + h.Target
	}
	return h.Method + " " + h.Target
}
