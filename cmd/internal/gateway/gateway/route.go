package gateway

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/authn"
	"github.com/sluiceproject/sluice/internal/match"
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

	// Authn tells whose request it is. Nil: nobody asks, and who it is from is not told to upstreams.
	Authn *authn.Chain
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
