package config

import (
	"strings"
	"time"

	"github.com/sluiceproject/sluice/internal/cors"
	"github.com/sluiceproject/sluice/internal/match"
	"github.com/sluiceproject/sluice/internal/strictyaml"
)

// Route forwards the requests of a host and path pattern to an upstream.
type Route struct {
	Host, Path             string
	Upstream               string
	StripPrefix, AddPrefix string
	HostHeader             string // HostHeaderClient or HostHeaderUpstream
	MaxBodySize            int64  // 0: unlimited
	Timeout                time.Duration
	Authentication         []string
	AllowAnonymous         bool // accept requests without credentials too
	CORS                   cors.Config
}

// Values of Route.HostHeader.
const (
	HostHeaderClient   = "client"   // the client's Host header
	HostHeaderUpstream = "upstream" // the host of the upstream server's URL
)

func (r *Route) keys() []Setting {
	return []Setting{
		{"host", host(&r.Host), "", "host of the requests: `api.example.com`, or `\"*.example.com\"` for all subdomains. Default: any"},
		{"path", pattern(&r.Path), "/**", "path pattern of the requests, as in rules: `/v1/**`, `/users/{id}`"},
		{"upstream", text("name", &r.Upstream), "", "name of the upstream, one of `gateway.upstreams`; required"},
		{"strip_prefix", prefix(&r.StripPrefix), "", "prefix to remove from the path before forwarding; `path` must begin with it"},
		{"add_prefix", prefix(&r.AddPrefix), "", "prefix to add to the path before forwarding, after `strip_prefix`"},
		{"host_header", word(&r.HostHeader, HostHeaderClient, HostHeaderUpstream), HostHeaderClient, "`Host` header of forwarded requests: that of the client, or the host of the upstream server's URL"},
		{"max_body_size", orOff(&r.MaxBodySize, 1, 1<<40), "10MiB", "maximum size of a request's body; larger ones get 413. Long-lived streams need `off`"},
		{"timeout", duration(&r.Timeout), "60s", "timeout from the last byte of the request to the response headers of the upstream, retries included; then 504"},
		{"authentication", methods(&r.Authentication), "", "accepted authentication methods, any of `api_keys`, `jwt` and `basic`; requests without valid credentials get 401. Default: no authentication. See [authentication.md](authentication.md)"},
		{"allow_anonymous", boolean(&r.AllowAnonymous), "false", "accept requests without credentials too, without an identity; wrong credentials still get 401. Needs `authentication`"},
		{"cors.origins", corsList("list of origins", &r.CORS.AllowedOrigins, cors.CheckOrigin, shape{"type": "string", "pattern": `^(\*|[^:]+://[^/?#@]+)$`}), "", "origins whose scripts may read responses: `https://app.example.com`, `https://*.example.com` for all subdomains, or `\"*\"` for all. See [cors.md](cors.md)"},
		{"cors.methods", corsList("list of methods", &r.CORS.AllowedMethods, cors.CheckMethod, textShape.with("pattern", "^[!#$%&'*+.^_`|~0-9A-Z-]+$")), "[" + strings.Join(cors.DefaultMethods(), ", ") + "]", "methods that scripts of these origins may use"},
		{"cors.headers", corsList("list of names", &r.CORS.AllowedHeaders, cors.CheckHeader, headerShape), "[\"*\"]", "request headers that scripts of these origins may set; `\"*\"` means all"},
		{"cors.exposed_headers", corsList("list of names", &r.CORS.ExposedHeaders, cors.CheckHeader, headerShape), "", "response headers that scripts of these origins may read, besides those about limits, `Location` and `X-Request-Id`"},
		{"cors.credentials", boolean(&r.CORS.AllowCredentials), "false", "allow browsers to send cookies and other credentials; not with origin `\"*\"`"},
		{"cors.max_age", durationOrNone(&r.CORS.MaxAge), "10m", "lifetime of a preflight response in the browser's cache"},
	}
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
		e := routeEntry{item, readEntry(d, item, what, r.keys()) && item.Whole()}
		if e.sound && item.Field("upstream") == nil {
			d.Fault(item, "%s: there is no upstream: write upstream: and the name of one of gateway.upstreams", what)
		}
		if e.sound {
			d.checkRoute(item, what, &r)
		}
		d.to.Gateway.Routes = append(d.to.Gateway.Routes, r)
		d.routeEntries = append(d.routeEntries, e)
	}
}

// routeEntry is the node of a route.
type routeEntry struct {
	*strictyaml.Node
	sound bool // the route has no errors
}

// checkRoute reports keys of a route that are valid alone but not together.
func (d *decoder) checkRoute(n *strictyaml.Node, what string, r *Route) {
	if at := n.Field("cors"); at != nil {
		if _, err := cors.New(r.CORS); err != nil {
			d.Fault(at, "%s.cors: %v", what, err)
		}
	}
	p, err := match.ParsePattern(r.Path, false)
	if err != nil {
		return // already reported
	}
	if at := n.Field("strip_prefix"); at != nil && !p.HasPrefix(r.StripPrefix) {
		d.Fault(at, "%s.strip_prefix: not all paths that match %s begin with %s: begin path with it, as in %s/**", what, r.Path, r.StripPrefix, r.StripPrefix)
	}
	if p.HasPrefix(ownPath) {
		d.Fault(n, "%s.path: paths that begin with %s are reserved for the gateway: choose another path", what, ownPath)
	}
}

// ownPath is the prefix of paths that the gateway itself serves, as in package gateway.
const ownPath = "/.sluice"

// checkRoutes reports unknown upstreams and routes that match the same requests.
func (d *decoder) checkRoutes(at func(string) *strictyaml.Node) {
	g := &d.to.Gateway
	upstreams := at("gateway.upstreams")
	if upstreams == nil {
		upstreams = &strictyaml.Node{Partial: !d.sound("gateway.upstreams")}
	}
	type seen struct {
		host string
		path *match.Pattern
		line int
	}
	var before []seen
	for i, r := range g.Routes {
		n := d.routeEntries[i]
		switch {
		case r.Upstream == "" || upstreams.MayLose(r.Upstream):
		case len(d.upstreamNames) == 0:
			d.Fault(n.Node, "gateway.routes.upstream: there is no upstream %q: write gateway: {upstreams: {%[1]s: {servers: [http://127.0.0.1:9000]}}}", r.Upstream)
		default:
			d.OneOf(n.Field("upstream"), "gateway.routes.upstream", d.upstreamNames...)
		}
		if !n.sound {
			continue
		}
		p, _ := match.ParsePattern(r.Path, false) // cannot fail: already checked
		host := match.CanonicalHost(r.Host)
		for _, b := range before {
			if b.host == host && b.path.Compare(p) == 0 {
				d.Fault(n.Node, "gateway.routes: the route in line %d matches the same requests: remove one of them", b.line)
				break
			}
		}
		before = append(before, seen{host, p, n.Line})
	}
}

// methods is a list of authentication methods. checkAuthentication checks that they are enabled.
func methods(to *[]string) value {
	list := texts("list of methods", to)
	list.shape = listOf(shape{"enum": []string{MethodAPIKeys, MethodJWT, MethodBasic}})
	return list
}

func host(to *string) value {
	return checkedText("name", to, func(s string) bool {
		name := strings.TrimPrefix(s, "*.")
		return !strings.ContainsAny(name, "*:/@? ") && strings.Trim(name, ".") == strings.TrimSuffix(name, ".") && name != ""
	}, `write a name without scheme and port, such as api.example.com, or "*.example.com" for all subdomains`, textShape.with("pattern", `^(\*\.)?([^*:/@? .]([^*:/@? ]*[^*:/@? .])?\.?|\.)$`))
}

func pattern(to *string) value {
	return value{"path", func(d *decoder, n *strictyaml.Node) {
		s, ok := d.String(n, d.name)
		if !ok {
			return
		}
		if _, err := match.ParsePattern(s, false); err != nil {
			d.Fault(n, "%s: %v", d.name, err)
			return
		}
		*to = s
	}, pathShape}
}

func prefix(to *string) value {
	return value{"path", func(d *decoder, n *strictyaml.Node) {
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
	}, shape{"type": "string", "pattern": `^/[^*{}]*[^*{}/][^*{}]*$`}}
}

// corsList is a list of texts for which check returns nil.
func corsList(kind string, to *[]string, check func(string) error, item shape) value {
	return value{kind, func(d *decoder, n *strictyaml.Node) {
		items, ok := d.entries(n)
		if !ok {
			return
		}
		var list []string
		for _, item := range items {
			if err := check(item.Text); err != nil {
				d.Fault(item, "%s: %v", d.name, err)
				continue
			}
			list = append(list, item.Text)
		}
		*to = list
	}, listOf(item)}
}

// orOff is a size or off, which is 0.
func orOff(to *int64, minimum, maximum int64) value {
	some := size(to, minimum, maximum)
	return value{some.Type + ", or `off`", func(d *decoder, n *strictyaml.Node) {
		if n.Kind == strictyaml.Scalar && n.Text == Off {
			*to = 0
			return
		}
		some.read(d, n)
	}, shape{"anyOf": []shape{sizeShape, {"enum": []string{Off}}}}}
}
