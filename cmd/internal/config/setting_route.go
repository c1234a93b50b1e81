package config

import (
	"strings"
	"time"

	"github.com/sluiceproject/sluice/internal/match"
	"github.com/sluiceproject/sluice/internal/strictyaml"
)

// Route is which requests go to which upstream.
type Route struct {
	Host, Path             string
	Upstream               string
	StripPrefix, AddPrefix string
	UpstreamHost           bool
	MaxBody                int64 // 0: any
	Timeout                time.Duration
	Authentication         []string
	Anonymous              bool // who shows no credentials is let in too
}

// sizeOrOff is the type of a bound that may be none.
const sizeOrOff = "size or `off`"

var routeKeys = []key[Route]{
	{
		"host", "name", "",
		"of the requests: `api.example.com`, or `\"*.example.com\"` for all names below; without it any",
		func(r *Route) reader { return host(&r.Host) },
	},
	{
		"path", "path", "/**",
		"of the requests, written as in rules: `/v1/**`, `/users/{id}`",
		func(r *Route) reader { return pattern(&r.Path) },
	},
	{
		"upstream", "name", "",
		"where they go: one of `gateway.upstreams`",
		func(r *Route) reader { return text(func(*Config) *string { return &r.Upstream }) },
	},
	{
		"strip_prefix", "path", "",
		"what is cut off the path before it goes on; `path` has to begin with it",
		func(r *Route) reader { return prefix(&r.StripPrefix) },
	},
	{
		"add_prefix", "path", "",
		"what is put before the path, after that",
		func(r *Route) reader { return prefix(&r.AddPrefix) },
	},
	{
		"send_host", "`client`, `upstream`", "client",
		"the `Host` that the upstream is sent: what the client sent, or the server's own",
		func(r *Route) reader { return sendHost(&r.UpstreamHost) },
	},
	{
		"max_body", sizeOrOff, "10MiB",
		"of a request's body; more is a 413. Streams that last need `off`",
		func(r *Route) reader { return orOff(&r.MaxBody, 1, 1<<40) },
	},
	{
		"timeout", "duration", "60s",
		"how long the upstream may take to begin its answer, counted from the last piece of the request, with retries; then 504",
		func(r *Route) reader { return duration(func(*Config) *seconds { return &r.Timeout }) },
	},
	{
		"authentication", "list of methods", "",
		"how clients say who they are, any of `api_keys`, `jwt` and `basic`; others are a 401. See [authentication.md](authentication.md)",
		func(r *Route) reader { return texts(func(*Config) *[]string { return &r.Authentication }) },
	},
	{
		"anonymous", "boolean", "false",
		"with `authentication`: let in who shows no credentials too, as nobody; wrong ones are a 401",
		func(r *Route) reader { return boolean(func(*Config) *bool { return &r.Anonymous }) },
	},
}

func (d *decoder) routes(n *strictyaml.Node) {
	what := d.name
	items, ok := d.Sequence(n, what)
	if !ok {
		return
	}
	if len(items) == 0 {
		d.Fault(n, "%s: the list is empty: write - {path: /**, upstream: NAME}", what)
		return
	}
	for _, item := range items {
		var r Route
		if !readEntry(d, item, what, routeKeys, &r) {
			continue
		}
		if item.Field("upstream") == nil {
			d.Fault(item, "%s: there is no upstream: write upstream: and the name of one of gateway.upstreams", what)
			continue
		}
		d.checkRoute(item, what, &r)
		d.to.Gateway.Routes = append(d.to.Gateway.Routes, r)
		d.routeNodes = append(d.routeNodes, item)
	}
}

// checkRoute finds keys that are sound by themselves and not together.
func (d *decoder) checkRoute(n *strictyaml.Node, what string, r *Route) {
	p, err := match.ParsePattern(r.Path, false)
	if err != nil {
		return // is reported
	}
	if at := n.Field("strip_prefix"); at != nil && !p.HasPrefix(r.StripPrefix) {
		d.Fault(at, "%s.strip_prefix: not all paths that fit %s begin with %s: let path begin with it, as in %s/**", what, r.Path, r.StripPrefix, r.StripPrefix)
	}
	if p.HasPrefix(ownPath) {
		d.Fault(n, "%s.path: what begins with %s is answered by the gateway itself: choose another path", what, ownPath)
	}
}

// ownPath is that of package gateway.
const ownPath = "/.sluice"

// checkRoutes looks at routes beside each other and beside the upstreams.
func (d *decoder) checkRoutes() {
	g := &d.to.Gateway
	var names []string
	for _, u := range g.Upstreams {
		names = append(names, u.Name)
	}
	type seen struct {
		host string
		path *match.Pattern
		line int
	}
	var before []seen
	for i, r := range g.Routes {
		n := d.routeNodes[i]
		if len(names) == 0 {
			d.Fault(n, "gateway.routes.upstream: there is no upstream %q: write gateway: {upstreams: {%[1]s: {servers: [http://127.0.0.1:9000]}}}", r.Upstream)
		} else {
			d.OneOf(n.Field("upstream"), "gateway.routes.upstream", names...)
		}
		p, _ := match.ParsePattern(r.Path, false) // is sound
		host := match.CanonicalHost(r.Host)
		for _, b := range before {
			if b.host == host && b.path.Compare(p) == 0 {
				d.Fault(n, "gateway.routes: the route in line %d takes the same requests: remove one of them", b.line)
				break
			}
		}
		before = append(before, seen{host, p, n.Line})
	}
}

func host(to *string) reader {
	return func(d *decoder, n *strictyaml.Node) {
		s, ok := d.String(n, d.name)
		if !ok {
			return
		}
		name := strings.TrimPrefix(s, "*.")
		if strings.ContainsAny(name, "*:/@? ") || strings.Trim(name, ".") != strings.TrimSuffix(name, ".") || name == "" {
			d.Fault(n, "%s: is %s: write a name without scheme and port, such as api.example.com, or \"*.example.com\" for all names below", d.name, n)
			return
		}
		*to = s
	}
}

func pattern(to *string) reader {
	return func(d *decoder, n *strictyaml.Node) {
		s, ok := d.String(n, d.name)
		if !ok {
			return
		}
		if _, err := match.ParsePattern(s, false); err != nil {
			d.Fault(n, "%s: %v", d.name, err)
			return
		}
		*to = s
	}
}

func prefix(to *string) reader {
	return func(d *decoder, n *strictyaml.Node) {
		s, ok := d.String(n, d.name)
		if !ok {
			return
		}
		canonical, err := match.CanonicalPath(s)
		if err != nil || canonical == "/" || strings.ContainsAny(canonical, "*{}") {
			d.Fault(n, "%s: is %s: write a plain path, such as /v1", d.name, n)
			return
		}
		*to = canonical
	}
}

func sendHost(to *bool) reader {
	return func(d *decoder, n *strictyaml.Node) {
		if i, ok := d.OneOf(n, d.name, "client", "upstream"); ok {
			*to = i == 1
		}
	}
}

// orOff reads a size, or off, which is 0.
func orOff(to *int64, least, most int64) reader {
	return func(d *decoder, n *strictyaml.Node) {
		if n.Kind == strictyaml.Scalar && n.Text == Off {
			*to = 0
			return
		}
		size(func(*Config) *int64 { return to }, least, most)(d, n)
	}
}

// RouteTable is the table of a route's keys in Markdown.
func RouteTable() string { return keyTable(routeKeys) }
