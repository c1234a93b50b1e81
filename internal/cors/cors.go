// Package cors implements the server side of the CORS protocol of the Fetch Standard: which responses scripts of other
// origins may read, and the responses to preflights.
package cors

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Header is http.Header. This package must not import net/http, because the configuration parser imports it and must not.
type Header = map[string][]string

// Config is the configuration of a policy. AllowedOrigins is required.
type Config struct {
	AllowedOrigins   []string // "https://app.example.com", "https://*.example.com", or "*" for every origin
	AllowedMethods   []string // nil means DefaultMethods
	AllowedHeaders   []string // request headers; nil or "*" means all headers of the preflight
	ExposedHeaders   []string // response headers that scripts may read; "*" means all
	AllowCredentials bool     // cookies, client certificates and Authorization of the browser; excludes "*"
	MaxAge           time.Duration
}

// DefaultMethods returns the methods that a policy allows by default.
func DefaultMethods() []string {
	return []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"}
}

// wildcard stands for every origin or every header.
const wildcard = "*"

// Header names in canonical form, so that they can be used as keys of an http.Header.
const (
	headerOrigin         = "Origin"
	headerRequestMethod  = "Access-Control-Request-Method"
	headerRequestHeaders = "Access-Control-Request-Headers"

	headerAllowOrigin      = "Access-Control-Allow-Origin"
	headerAllowCredentials = "Access-Control-Allow-Credentials"
	headerExposeHeaders    = "Access-Control-Expose-Headers"
	headerAllowMethods     = "Access-Control-Allow-Methods"
	headerAllowHeaders     = "Access-Control-Allow-Headers"
	headerMaxAge           = "Access-Control-Max-Age"
	headerVary             = "Vary"
)

// Policy is a compiled Config. Its methods are safe for concurrent use.
type Policy struct {
	exact map[string]bool
	below []below

	// Header lines. All responses share them; their capacity equals their length, so that appending copies them.
	anyOrigin, credentials   []string // nil: not sent
	exposed, methods, maxAge []string
	headers                  []string // nil: those of the preflight
}

// New compiles a policy. Duplicate names in ExposedHeaders are sent once.
func New(c Config) (*Policy, error) {
	p := &Policy{exact: map[string]bool{}, maxAge: line(strconv.FormatInt(int64((max(0, c.MaxAge)+time.Second-1)/time.Second), 10))}
	if len(c.AllowedOrigins) == 0 {
		return nil, errors.New(`no origin is allowed: list the origins of the pages, such as https://app.example.com, or "*" for all`)
	}
	for _, text := range c.AllowedOrigins {
		if err := CheckOrigin(text); err != nil {
			return nil, err
		}
		p.allow(strings.ToLower(text))
	}
	methods := c.AllowedMethods
	if len(methods) == 0 {
		methods = DefaultMethods()
	}
	for _, m := range methods {
		if err := CheckMethod(m); err != nil {
			return nil, err
		}
	}
	p.methods = line(strings.Join(methods, ", "))
	for _, name := range slices.Concat(c.AllowedHeaders, c.ExposedHeaders) {
		if err := CheckHeader(name); err != nil {
			return nil, err
		}
	}
	if len(c.AllowedHeaders) > 0 && !slices.Contains(c.AllowedHeaders, wildcard) {
		p.headers = line(strings.Join(c.AllowedHeaders, ", "))
	}
	p.exposed = line(strings.Join(distinct(c.ExposedHeaders), ", "))
	if c.AllowCredentials {
		p.credentials = line("true")
		switch {
		case p.anyOrigin != nil:
			return nil, errCredentialsForAll
		case slices.Contains(c.ExposedHeaders, wildcard):
			return nil, errors.New(`with credentials, browsers treat the exposed header "*" as a literal name: list the headers`)
		}
	}
	return p, nil
}

// errCredentialsForAll is the error for a policy that allows credentials for every origin.
var errCredentialsForAll = errors.New(`credentials cannot be allowed to origin "*": any website could act as its visitors. ` +
	"List the origins, such as https://app.example.com or https://*.example.com, or leave credentials out")

// line returns a header of one line, or nil for the empty string. Appending to it copies it.
func line(text string) []string {
	if text == "" {
		return nil
	}
	return []string{text}[:1:1]
}

// distinct returns names without duplicates, compared without case.
func distinct(names []string) []string {
	var out []string
	for _, name := range names {
		if !slices.ContainsFunc(out, func(s string) bool { return strings.EqualFold(s, name) }) {
			out = append(out, name)
		}
	}
	return out
}

// CheckMethod returns an error if s is not valid as a method of a policy.
func CheckMethod(s string) error {
	if !isToken(s) || s == wildcard || s != strings.ToUpper(s) {
		return fmt.Errorf("%q is not a method: write methods in upper case, such as GET or DELETE", s)
	}
	return nil
}

// CheckHeader returns an error if s is neither a valid header name nor "*".
func CheckHeader(s string) error {
	if !isToken(s) {
		return fmt.Errorf(`%q is not the name of a header: write one, such as X-Api-Key, or "*" for all`, s)
	}
	return nil
}

// isToken reports whether s is a token of RFC 9110.
func isToken(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}

// IsPreflight reports whether a request with this method and header is a CORS preflight.
func IsPreflight(method string, request Header) bool {
	return method == "OPTIONS" && len(request[headerOrigin]) > 0 && len(request[headerRequestMethod]) > 0
}

// AllowOrigin returns the Access-Control-Allow-Origin of the response to a request, or nil if its origin is not allowed.
func (p *Policy) AllowOrigin(request Header) []string {
	if p.anyOrigin != nil {
		return p.anyOrigin
	}
	if sent := request[headerOrigin]; len(sent) == 1 && p.allows(sent[0]) {
		return sent[:1:1]
	}
	return nil
}

// SetHeaders sets the CORS headers of a response and removes existing ones. allowed is the result of AllowOrigin.
func (p *Policy) SetHeaders(response Header, allowed []string) {
	for _, name := range [...]string{
		headerAllowOrigin, headerAllowCredentials, headerExposeHeaders, headerAllowMethods, headerAllowHeaders, headerMaxAge,
		"Access-Control-Allow-Private-Network",
	} {
		delete(response, name)
	}
	if p.anyOrigin == nil { // otherwise responses do not depend on the origin
		addVary(response, headerOrigin)
	}
	if allowed == nil {
		return
	}
	response[headerAllowOrigin] = allowed
	set(response, headerAllowCredentials, p.credentials)
	set(response, headerExposeHeaders, p.exposed)
}

// SetPreflightHeaders sets the CORS headers of the response to a preflight. Its status is always 204.
func (p *Policy) SetPreflightHeaders(response, request Header) {
	allowed := p.AllowOrigin(request)
	p.SetHeaders(response, allowed)
	delete(response, headerExposeHeaders) // only for the response to the actual request
	headers := p.headers
	if headers == nil {
		addVary(response, headerRequestHeaders)
		headers = request[headerRequestHeaders]
	}
	if allowed != nil {
		set(response, headerAllowMethods, p.methods)
		set(response, headerAllowHeaders, headers)
		set(response, headerMaxAge, p.maxAge)
	}
}

func set(h Header, name string, lines []string) {
	if lines != nil {
		h[name] = lines
	}
}

// addVary adds a name to Vary unless it is already listed.
func addVary(h Header, name string) {
	old := h[headerVary]
	for _, text := range old {
		for item := range strings.SplitSeq(text, ",") {
			if item = strings.Trim(item, " \t"); item == wildcard || strings.EqualFold(item, name) {
				return
			}
		}
	}
	h[headerVary] = append(old[:len(old):len(old)], name)
}
