package config

import (
	"strings"
	"time"

	"github.com/sluiceproject/sluice/internal/cors"
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
	CORS                   cors.Config
}

// sizeOrOff is the type of a bound that may be none.
const sizeOrOff = "size or `off`"

func (r *Route) keys() []Setting {
	return []Setting{
		{"host", host(&r.Host), "", "of the requests: `api.example.com`, or `\"*.example.com\"` for all names below; without it any"},
		{"path", pattern(&r.Path), "/**", "of the requests, written as in rules: `/v1/**`, `/users/{id}`"},
		{"upstream", text("name", &r.Upstream), "", "where they go: one of `gateway.upstreams`"},
		{"strip_prefix", prefix(&r.StripPrefix), "", "what is cut off the path before it goes on; `path` has to begin with it"},
		{"add_prefix", prefix(&r.AddPrefix), "", "what is put before the path, after that"},
		{"send_host", sendHost(&r.UpstreamHost), "client", "the `Host` that the upstream is sent: what the client sent, or the server's own"},
		{"max_body", orOff(&r.MaxBody, 1, 1<<40), "10MiB", "of a request's body; more is a 413. Streams that last need `off`"},
		{"timeout", duration(&r.Timeout), "60s", "how long the upstream may take to begin its answer, counted from the last piece of the request, with retries; then 504"},
		{"authentication", methods(&r.Authentication), "", "how clients say who they are, any of `api_keys`, `jwt` and `basic`; others are a 401. See [authentication.md](authentication.md)"},
		{"anonymous", boolean(&r.Anonymous), "false", "with `authentication`: let in who shows no credentials too, as nobody; wrong ones are a 401"},
		{"cors.origins", corsList("list of origins", &r.CORS.AllowedOrigins, cors.CheckOrigin, shape{"type": "string", "pattern": `^(\*|[^:]+://[^/?#@]+)$`}), "", "origins whose scripts may read responses: `https://app.example.com`, `https://*.example.com` for all names below, or `\"*\"` for all. See [CORS](#cors)"},
		{"cors.methods", corsList("list of methods", &r.CORS.AllowedMethods, cors.CheckMethod, textShape.with("pattern", "^[!#$%&'*+.^_`|~0-9A-Z-]+$")), "[" + strings.Join(cors.DefaultMethods(), ", ") + "]", "methods that those scripts may use"},
		{"cors.headers", corsList("list of names", &r.CORS.AllowedHeaders, cors.CheckHeader, headerShape), "[\"*\"]", "request headers that they may set; `\"*\"` is all"},
		{"cors.exposed_headers", corsList("list of names", &r.CORS.ExposedHeaders, cors.CheckHeader, headerShape), "", "response headers that they may read, besides those about limits, `Location` and `X-Request-Id`"},
		{"cors.credentials", boolean(&r.CORS.AllowCredentials), "false", "browsers may send cookies and other credentials; not with origin `\"*\"`"},
		{"cors.max_age", durationOrNone(&r.CORS.MaxAge), "10m", "lifetime of a preflight's response in the browser's cache"},
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

// routeEntry is where a route is written.
type routeEntry struct {
	*strictyaml.Node
	sound bool // all of its keys could be read
}

// checkRoute finds keys that are sound by themselves and not together.
func (d *decoder) checkRoute(n *strictyaml.Node, what string, r *Route) {
	if at := n.Field("cors"); at != nil {
		if _, err := cors.New(r.CORS); err != nil {
			d.Fault(at, "%s.cors: %v", what, err)
		}
	}
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
		p, _ := match.ParsePattern(r.Path, false) // is sound
		host := match.CanonicalHost(r.Host)
		for _, b := range before {
			if b.host == host && b.path.Compare(p) == 0 {
				d.Fault(n.Node, "gateway.routes: the route in line %d takes the same requests: remove one of them", b.line)
				break
			}
		}
		before = append(before, seen{host, p, n.Line})
	}
}

// methods reads the names of methods of authentication. That they are set up is checked with the settings beside it.
func methods(to *[]string) value {
	list := texts("list of methods", to)
	list.shape = listOf(shape{"enum": []string{MethodAPIKeys, MethodJWT, MethodBasic}})
	return list
}

func host(to *string) value {
	return checkedText("name", to, func(s string) bool {
		name := strings.TrimPrefix(s, "*.")
		return !strings.ContainsAny(name, "*:/@? ") && strings.Trim(name, ".") == strings.TrimSuffix(name, ".") && name != ""
	}, `write a name without scheme and port, such as api.example.com, or "*.example.com" for all names below`, textShape.with("pattern", `^(\*\.)?([^*:/@? .]([^*:/@? ]*[^*:/@? .])?\.?|\.)$`))
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

func sendHost(to *bool) value {
	return value{"`client`, `upstream`", func(d *decoder, n *strictyaml.Node) {
		if i, ok := d.OneOf(n, d.name, "client", "upstream"); ok {
			*to = i == 1
		}
	}, shape{"enum": []string{"client", "upstream"}}}
}

// corsList reads a list of texts that check has no error for.
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

// orOff reads a size, or off, which is 0.
func orOff(to *int64, least, most int64) value {
	some := size(to, least, most)
	return value{sizeOrOff, func(d *decoder, n *strictyaml.Node) {
		if n.Kind == strictyaml.Scalar && n.Text == Off {
			*to = 0
			return
		}
		some.read(d, n)
	}, shape{"anyOf": []shape{sizeShape, {"enum": []string{Off}}}}}
}
