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

// Route is where requests of some host and path go.
type Route struct {
	Name string // in metrics and logs
	// Host is a name, "*.example.com" for all names below, or empty for any.
	Host string
	Path *match.Pattern
	// Upstream answers. It is given a request that is ready to be sent on.
	Upstream http.Handler

	StripPrefix  string        // a canonical path that is cut off; every path of the route begins with it
	AddPrefix    string        // a canonical path that is put before, after that
	MaxBody      int64         // bytes; 0: any number
	Timeout      time.Duration // until an answer begins, from the last piece of the request; 0: none
	UpstreamHost bool          // the upstream is called by its own host, not by the one that the client sent

	// Authn finds out whose request it is. Nil: requests are not authenticated, and upstreams are not told whose they are.
	Authn *authn.Chain

	// CORS is which responses scripts of other origins may read; the headers about limits are always exposed. Its preflights
	// are answered, without authentication and rules. Without origins, nothing is done about CORS.
	CORS cors.Config
	cors *cors.Policy // nil: without origins
}

// maxQuery is how many parameters a query may have: rules look at each.
const maxQuery = 1000

// readTarget gives the request's method, host, path and query the one reading that routes, rules and upstreams share, or
// refuses it. The URL is then that of an origin server: path and query alone. It returns the canonical path, which has no
// slash at the end; the URL's path keeps it.
func readTarget(r *http.Request) (path string, fault *rejection) {
	switch {
	case r.Method == http.MethodConnect || r.Method == http.MethodTrace:
		return "", reject(http.StatusMethodNotAllowed, "The method "+r.Method+" is not served here.")
	case !isMethod(r.Method):
		return "", reject(http.StatusBadRequest, "The method is malformed: methods are in upper case.")
	case !isHost(r.Host):
		return "", reject(http.StatusBadRequest, "The host is malformed.")
	case strings.IndexByte(r.RequestURI, '#') >= 0:
		return "", reject(http.StatusBadRequest, "The target has a fragment, which is not for servers.")
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
		return "", reject(http.StatusBadRequest, "The path has a semicolon, which only some servers take for a separator.")
	}
	path, err := match.CanonicalPath(sent)
	if err != nil {
		return "", reject(http.StatusBadRequest, pathDetail(err))
	}
	setPath(r, path, sent[len(sent)-1] == '/')
	return path, nil
}

// readAbsolute takes a target of the absolute form (GET http://example.com/ HTTP/1.1) for one of the origin form, as
// servers must. Its host is the request's: net/http has dropped the Host header.
func readAbsolute(r *http.Request) *rejection {
	u := r.URL
	if u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.Opaque != "" || u.Host != r.Host || (u.Scheme == "https") != (r.TLS != nil) {
		return reject(http.StatusBadRequest, "The target is of another server or scheme.")
	}
	u.Scheme, u.Host = "", ""
	return nil
}

// pathDetail says why a path is refused, which is about what the client sent and nothing else.
func pathDetail(err error) string {
	if errors.Is(err, rules.ErrAmbiguousPath) {
		if _, why, ok := strings.Cut(err.Error(), rules.ErrAmbiguousPath.Error()+": "); ok {
			return "The path is ambiguous or malformed: " + why + "."
		}
	}
	return "The path is ambiguous or malformed."
}

// isMethod takes those that there are: upper case. Some applications do not mind the case, and rules do.
func isMethod(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < 'A' || c > 'Z') && c != '-' {
			return false
		}
	}
	return s != "" && len(s) <= 32
}

// isHost takes a name or address with or without a port, or none, which an old client sends.
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

// isPort takes a colon and a number.
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
	below  map[string]*match.Table // by what follows the "*."
	any    *match.Table
}

// newRouteTable orders the routes of each host, the most specific path first.
func newRouteTable(all []Route) (*routeTable, error) {
	t := &routeTable{exact: map[string]*match.Table{}, below: map[string]*match.Table{}, any: new(match.Table)}
	for i := range all {
		if all[i].Path == nil || all[i].Upstream == nil {
			return nil, fmt.Errorf("gateway: route %q lacks a path or an upstream", all[i].Name)
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

// find is the route of a canonical path: of those that host and path fit, that with the most specific host, and of these
// that with the most specific path. It is nil if there is none.
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

// rewrite changes the path to that which the upstream knows.
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

// setPath has the URL hold a canonical path, with a slash at the end if there was one.
func setPath(r *http.Request, path string, slash bool) {
	if slash && path != "/" {
		path += "/"
	}
	r.URL.Path, r.URL.RawPath = path, match.EscapePath(path) // without RawPath net/url would spell it its own way
}

// isServerWide reports whether a request is about the server as a whole: OPTIONS *. To rules its path is /.
func isServerWide(r *http.Request) bool { return r.Method == http.MethodOptions && r.RequestURI == "*" }

// serverWide answers such requests, with nothing, once rules have let them pass. They are not forwarded.
var serverWide = &Route{Name: "OPTIONS *", Upstream: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
	problem.SetAside(w)
	w.WriteHeader(http.StatusNoContent)
})}
