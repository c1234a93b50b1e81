package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/authn"
	"github.com/sluiceproject/sluice/internal/bounds"
	"github.com/sluiceproject/sluice/internal/cors"
	"github.com/sluiceproject/sluice/internal/match"
	"github.com/sluiceproject/sluice/internal/problem"
	"github.com/sluiceproject/sluice/rules"
)

// Route maps requests of a host and path to an upstream.
type Route struct {
	Name string // in metrics and logs
	// Host is a name, "*.example.com" for all names below, or empty for any.
	Host string
	Path *match.Pattern
	// Upstream serves requests that are ready to be forwarded.
	Upstream     http.Handler
	UpstreamName string // in logs

	StripPrefix  string        // canonical path that is removed; every path of the route starts with it
	AddPrefix    string        // canonical path that is then prepended
	MaxBody      int64         // maximum body size in bytes; 0: unlimited
	Timeout      time.Duration // from the last piece of the request to the start of the response; 0: none
	UpstreamHost bool          // send the upstream's own host instead of the client's

	// Authn authenticates requests. Nil: requests are not authenticated, and upstreams get no identity.
	Authn *authn.Chain

	// CORS is the CORS policy; quota headers are always exposed. The gateway responds to preflights without authentication and
	// rules. Without origins, CORS headers of the upstream are not changed.
	CORS cors.Config
	cors *cors.Policy // nil: without origins
}

// maxQuery is the maximum number of query parameters, because rules check each.
const maxQuery = 1000

// readTarget converts the method, host, path and query of a request to the canonical form that routes, rules and upstreams
// share, or rejects the request. Afterwards the URL has only path and query. It returns the canonical path without a trailing
// slash, which the URL's path keeps.
func readTarget(r *http.Request) (path string, fault *rejection) {
	switch {
	case r.Method == http.MethodConnect || r.Method == http.MethodTrace:
		return "", reject(http.StatusMethodNotAllowed, "The method "+r.Method+" is not supported.")
	case !isMethod(r.Method):
		return "", reject(http.StatusBadRequest, "The method is malformed: methods must be in upper case.")
	case !isHost(r.Host):
		return "", reject(http.StatusBadRequest, "The host is malformed.")
	case strings.IndexByte(r.RequestURI, '#') >= 0:
		return "", reject(http.StatusBadRequest, "The request target has a fragment, which is not allowed.")
	case strings.Count(r.URL.RawQuery, "&") >= maxQuery:
		bounds.QueryParameters.Reached()
		return "", reject(http.StatusBadRequest, "The query has too many parameters.")
	}
	if r.URL.Scheme != "" || r.URL.Host != "" || r.URL.User != nil || r.URL.Opaque != "" {
		if fault := readAbsolute(r); fault != nil {
			return "", fault
		}
	}
	if isServerWide(r) {
		setPath(r, "/", false)
		return "/", nil
	}
	sent := match.SentPath(r.URL)
	if sent == "" { // "GET http://example.com HTTP/1.1"
		sent = "/"
	}
	if strings.IndexByte(sent, ';') >= 0 {
		return "", reject(http.StatusBadRequest, "The path has a semicolon, which only some servers treat as a separator.")
	}
	path, err := match.CanonicalPath(sent)
	if err != nil {
		return "", reject(http.StatusBadRequest, pathDetail(err))
	}
	setPath(r, path, sent[len(sent)-1] == '/')
	return path, nil
}

// readAbsolute converts a target in absolute form (GET http://example.com/ HTTP/1.1) to origin form, as servers must. Its host
// is the request's: net/http has dropped the Host header.
func readAbsolute(r *http.Request) *rejection {
	u := r.URL
	if u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.Opaque != "" || u.Host != r.Host || (u.Scheme == "https") != (r.TLS != nil) {
		return reject(http.StatusBadRequest, "The request target has another scheme or host than the connection.")
	}
	u.Scheme, u.Host = "", ""
	return nil
}

// pathDetail returns the reason why a path is rejected. It contains no internal details.
func pathDetail(err error) string {
	if errors.Is(err, rules.ErrAmbiguousPath) {
		if _, why, ok := strings.Cut(err.Error(), rules.ErrAmbiguousPath.Error()+": "); ok {
			return "The path is ambiguous or malformed: " + why + "."
		}
	}
	return "The path is ambiguous or malformed."
}

// isMethod reports whether s is a method in upper case. Other methods are rejected, because some applications ignore the case
// and rules do not.
func isMethod(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < 'A' || c > 'Z') && c != '-' {
			return false
		}
	}
	return s != "" && len(s) <= 32
}

// isHost reports whether s is a host name or address with or without a port, or empty, as of HTTP/1.0 clients.
func isHost(s string) bool {
	if s == "" {
		return true
	}
	if len(s) > 255+6 {
		return false
	}
	name, port, bracketed := s, "", false
	if s[0] == '[' {
		end := strings.IndexByte(s, ']')
		if end < 0 {
			return false
		}
		name, port, bracketed = s[1:end], s[end+1:], true
	} else if i := strings.IndexByte(s, ':'); i >= 0 {
		name, port = s[:i], s[i:]
	}
	if port != "" && !isPort(port) {
		return false
	}
	dot := true // an empty label
	for i := range len(name) {
		c := name[i]
		hex := c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f'
		switch {
		case bracketed:
			if !hex && c != ':' && c != '.' {
				return false
			}
		case c == '.':
			if dot {
				return false
			}
			dot = true
			continue
		case !hex && (c|0x20 < 'a' || c|0x20 > 'z') && c != '-' && c != '_':
			return false
		}
		dot = false
	}
	return name != "" && name != "."
}

// isPort reports whether s is a colon and a number.
func isPort(s string) bool {
	for i := 1; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s[0] == ':' && len(s) > 1 && len(s) <= 6
}

// routeTable finds the route of a request.
type routeTable struct {
	routes []*Route
	exact  map[string]*match.Table
	below  map[string]*match.Table // by the domain after "*."
	any    *match.Table
}

// newRouteTable returns a table in which the routes of each host are ordered, the most specific path first.
func newRouteTable(all []Route) (*routeTable, error) {
	t := &routeTable{exact: map[string]*match.Table{}, below: map[string]*match.Table{}, any: new(match.Table)}
	for i := range all {
		if all[i].Path == nil || all[i].Upstream == nil {
			return nil, fmt.Errorf("gateway: route %q has no path or no upstream", all[i].Name)
		}
		if err := all[i].compileCORS(); err != nil {
			return nil, fmt.Errorf("gateway: route %q: CORS: %w", all[i].Name, err)
		}
		t.routes = append(t.routes, &all[i])
	}
	slices.SortStableFunc(t.routes, func(a, b *Route) int { return a.Path.Compare(b.Path) })
	for number, route := range t.routes {
		host := match.CanonicalHost(route.Host)
		table := t.any
		if parent, ok := strings.CutPrefix(host, "*."); ok {
			table = tableOf(t.below, parent)
		} else if host != "" {
			table = tableOf(t.exact, host)
		}
		table.Add(route.Path, number)
	}
	return t, nil
}

func tableOf(tables map[string]*match.Table, name string) *match.Table {
	if tables[name] == nil {
		tables[name] = new(match.Table)
	}
	return tables[name]
}

// find returns the route of a host and canonical path: of the matching routes, those with the most specific host, and of these
// the one with the most specific path. It returns nil if none matches.
func (t *routeTable) find(host, path string) *Route {
	if len(t.exact)+len(t.below) > 0 {
		host = match.CanonicalHost(host)
		if table := t.exact[host]; table != nil {
			if n := table.First(path); n >= 0 {
				return t.routes[n]
			}
		}
		for rest := host; len(t.below) > 0; {
			_, parent, more := strings.Cut(rest, ".")
			if !more {
				break
			}
			if table := t.below[parent]; table != nil {
				if n := table.First(path); n >= 0 {
					return t.routes[n]
				}
			}
			rest = parent
		}
	}
	if n := t.any.First(path); n >= 0 {
		return t.routes[n]
	}
	return nil
}

// rewrite strips and adds the prefixes of the path.
func (r *Route) rewrite(req *http.Request) {
	if r.StripPrefix == "" && r.AddPrefix == "" {
		return
	}
	path, slash := strings.CutSuffix(req.URL.Path, "/")
	path = r.AddPrefix + strings.TrimPrefix(path, r.StripPrefix)
	if path == "" {
		path, slash = "/", false
	}
	setPath(req, path, slash)
}

// setPath sets the path of the URL to a canonical path, with a trailing slash if slash is set.
func setPath(r *http.Request, path string, slash bool) {
	if slash && path != "/" {
		path += "/"
	}
	r.URL.Path, r.URL.RawPath = path, match.EscapePath(path) // without RawPath net/url would escape it differently
}

// isServerWide reports whether a request is OPTIONS *. Its path for rules is /.
func isServerWide(r *http.Request) bool { return r.Method == http.MethodOptions && r.RequestURI == "*" }

// serverWide responds with 204 to OPTIONS * requests that the rules allow. They are not forwarded.
var serverWide = &Route{Name: "OPTIONS *", Upstream: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
	problem.SetAside(w)
	w.WriteHeader(http.StatusNoContent)
})}
