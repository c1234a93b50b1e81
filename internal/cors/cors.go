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

// Header is http.Header. The package does not import net/http, because the package that reads configurations must not.
type Header = map[string][]string

// Config is a policy as people write it. AllowedOrigins is required.
type Config struct {
	AllowedOrigins   []string // "https://app.example.com", "https://*.example.com", or "*" for every origin
	AllowedMethods   []string // nil means DefaultMethods
	AllowedHeaders   []string // request headers; nil or "*" means all that a preflight names
	ExposedHeaders   []string // response headers that scripts may read; "*" means all
	AllowCredentials bool     // cookies, client certificates and Authorization of the browser; excludes "*"
	MaxAge           time.Duration
}

// DefaultMethods are the methods that a policy allows unless it names others.
func DefaultMethods() []string {
	return []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"}
}

// wildcard is every origin, or every header.
const wildcard = "*"

// Names in the form that http.Header keeps them in, so that they can be put there directly.
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

// Policy is a compiled Config. Its methods may be called by several goroutines at once.
type Policy struct {
	exact map[string]bool
	below []below

	// The lines of headers. They are shared by all responses, and have no room for another.
	anyOrigin, credentials   []string // nil: not sent
	exposed, methods, maxAge []string
	headers                  []string // nil: those that the preflight names
}

// New compiles a policy. Names that ExposedHeaders has twice are sent once.
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
			return nil, errors.New(`with credentials, browsers take the exposed header "*" for a name: list the headers`)
		}
	}
	return p, nil
}

// errCredentialsForAll is the error of a policy that allows credentials to every origin.
var errCredentialsForAll = errors.New(`credentials cannot be allowed to origin "*": any website could act as its visitors. ` +
	"List the origins, such as https://app.example.com or https://*.example.com, or leave credentials out")

// line returns a header of one line. Appending to it copies it. Nothing is no header.
func line(text string) []string {
	if text == "" {
		return nil
	}
	return []string{text}[:1:1]
}

// distinct returns names without those that are there before, in whatever case.
func distinct(names []string) []string {
	var out []string
	for _, name := range names {
		if !slices.ContainsFunc(out, func(s string) bool { return strings.EqualFold(s, name) }) {
			out = append(out, name)
		}
	}
	return out
}

// CheckMethod returns an error that says what to write if a method cannot be one of a policy.
func CheckMethod(s string) error {
	if !isToken(s) || s == wildcard || s != strings.ToUpper(s) {
		return fmt.Errorf("%q is not a method: write methods in upper case, such as GET or DELETE", s)
	}
	return nil
}

// CheckHeader returns an error that says what to write if a name cannot be that of a header, nor "*".
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

// IsPreflight reports whether a browser asks, by a request with this method and header, whether a script may send another
// request.
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

// SetHeaders sets the CORS headers of a response, where allowed is from AllowOrigin. They replace those that are there.
func (p *Policy) SetHeaders(response Header, allowed []string) {
	for _, name := range [...]string{
		headerAllowOrigin, headerAllowCredentials, headerExposeHeaders, headerAllowMethods, headerAllowHeaders, headerMaxAge,
		"Access-Control-Allow-Private-Network",
	} {
		delete(response, name)
	}
	if p.anyOrigin == nil { // with it, responses to all origins are the same
		addVary(response, headerOrigin)
	}
	if allowed == nil {
		return
	}
	response[headerAllowOrigin] = allowed
	set(response, headerAllowCredentials, p.credentials)
	set(response, headerExposeHeaders, p.exposed)
}

// SetPreflightHeaders sets the CORS headers of the response to a preflight, which is 204 whatever is allowed.
func (p *Policy) SetPreflightHeaders(response, request Header) {
	allowed := p.AllowOrigin(request)
	p.SetHeaders(response, allowed)
	delete(response, headerExposeHeaders) // it is about the response to the request that follows
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

// addVary adds a name to Vary unless it is there.
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
