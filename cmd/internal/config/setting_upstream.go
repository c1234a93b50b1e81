package config

import (
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/sluiceproject/sluice/internal/strictyaml"
)

// Upstream is a group of servers that answer the same requests.
type Upstream struct {
	Name    string
	Servers []string
	Balance string
	HashBy  string // of Balance hash: an attribute, written as in rules

	Health   UpstreamHealth
	Failures int64 // in a row, after which a server rests
	Rest     time.Duration

	Connect, Header, Idle time.Duration // timeouts
	Retries               int64
	TLS                   StoreTLS
	ServerName            string
}

// UpstreamHealth is how servers are asked whether they are well. Without a path they are not.
type UpstreamHealth struct {
	Path               string
	Interval, Timeout  time.Duration
	Healthy, Unhealthy int64 // answers in a row
}

func (u *Upstream) keys() []Setting {
	return []Setting{
		{"servers", servers(&u.Servers), "", "`http://host:port`, `https://…`, or `h2c://…` for HTTP/2 without TLS, as gRPC servers speak"},
		{"balance", word(&u.Balance, "round_robin", "least_requests", "hash"), "round_robin", "which server is next: each in turn; that with the fewest requests; always the same for the same `hash_by`"},
		{"hash_by", hashBy(&u.HashBy), "ip", "with `balance: hash`: `ip`, `path`, `header:NAME` or `cookie:NAME`"},
		{"health.path", path(&u.Health.Path), "", "what servers are asked, again and again; without it they are not"},
		{"health.interval", duration(&u.Health.Interval), "5s", "how often"},
		{"health.timeout", duration(&u.Health.Timeout), "1s", "how long the answer may take"},
		{"health.healthy", number(&u.Health.Healthy, 1, 100), "2", "good answers in a row after which a server is used again"},
		{"health.unhealthy", number(&u.Health.Unhealthy, 1, 100), "3", "bad ones after which it is not"},
		{"eject.failures", number(&u.Failures, 1, 1e6), "5", "requests in a row that a server fails, after which it rests; at most half of the servers rest, so a single one never does"},
		{"eject.rest", duration(&u.Rest), "10s", "for how long"},
		{"timeouts.connect", duration(&u.Connect), "1s", "how long a connection may take; TLS may take 5s more"},
		{"timeouts.header", duration(&u.Header), "30s", "how long a server may take to begin its answer, once it has the request"},
		{"timeouts.idle", duration(&u.Idle), "90s", "how long nothing may come, in either direction, while a body is sent"},
		{"retries", number(&u.Retries, 0, 10), "1", "how often a request that is safe to repeat is sent to another server"},
		{"tls.ca", file(&u.TLS.CA), "", "who signs the servers' certificates, PEM, instead of those the system trusts"},
		{"tls.cert", file(&u.TLS.Cert), "", "the certificate to show to the servers, PEM"},
		{"tls.key", file(&u.TLS.Key), "", "its key, PEM"},
		{"tls.server_name", text("text", &u.ServerName), "", "the name that the servers' certificates must have, instead of that in the URL"},
	}
}

var upstreamName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)

func (d *decoder) upstreams(n *strictyaml.Node) {
	if !d.IsMapping(n, d.name) {
		d.upstreamNames = nil
		return
	}
	what := d.name
	var all []Upstream
	for _, field := range n.Fields {
		name := field.Key.Text
		d.upstreamNames = append(d.upstreamNames, name)
		if !upstreamName.MatchString(name) {
			d.Fault(field.Key, "%s: %s is not a name: use letters, digits, - and _", what, strictyaml.Quote(name))
			continue
		}
		u := Upstream{Name: name}
		if readEntry(d, field.Value, under(what, name), u.keys()) {
			d.checkUpstream(field.Value, under(what, name), &u)
		}
		all = append(all, u)
	}
	d.to.Gateway.Upstreams = all
}

// checkUpstream finds keys that are sound by themselves and not together.
func (d *decoder) checkUpstream(n *strictyaml.Node, what string, u *Upstream) {
	if n.Kind != strictyaml.Mapping {
		return
	}
	if n.Lacks("servers") {
		d.Fault(n, "%s: there are no servers: write servers: [http://127.0.0.1:9000]", what)
	}
	if at := n.Field("hash_by"); at != nil && u.Balance != "hash" {
		d.Fault(at, "%s.hash_by: is for balance: hash, and this is %s: remove it, or change balance", what, u.Balance)
	}
	if at := n.Field("health"); at != nil && u.Health.Path == "" {
		d.Fault(at, "%s.health: there is no path: write path: /healthz, or remove it", what)
	}
	if at := n.Field("tls"); at != nil {
		secure := false
		for _, s := range u.Servers {
			secure = secure || strings.HasPrefix(s, "https://")
		}
		switch {
		case (u.TLS.Cert == "") != (u.TLS.Key == ""):
			d.Fault(at, "%s.tls: a certificate and its key go together: set cert and key, or neither", what)
		case !secure:
			d.Fault(at, "%s.tls: no server is called by TLS: write https:// before one, or remove it", what)
		}
	}
}

func servers(to *[]string) value {
	list := texts("list of URLs", to)
	return value{list.Type, func(d *decoder, n *strictyaml.Node) {
		list.read(d, n)
		nodes, _ := d.Strings(n, d.name)
		for _, node := range nodes {
			u, err := url.Parse(node.Text)
			if node.Kind != strictyaml.Scalar || node.Text == "" {
				continue // is reported
			}
			if err != nil || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "h2c" || u.Hostname() == "" || u.User != nil ||
				strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
				d.Fault(node, "%s: is %s: write http://host:port, https://host:port or h2c://host:port, without a path: routes have add_prefix for it", d.name, node)
			}
		}
	}, listOf(shape{"type": "string", "pattern": `^([hH][tT][tT][pP][sS]?|[hH]2[cC])://[^/]`})}
}

func hashBy(to *string) value {
	return checkedText("attribute", to, func(s string) bool {
		kind, name, named := strings.Cut(s, ":")
		return s == "ip" || s == "path" || named && name != "" && (kind == "header" || kind == "cookie")
	}, "write ip, path, header:NAME or cookie:NAME", shape{"type": "string", "pattern": `^(ip|path|(header|cookie):.+)$`})
}

func path(to *string) value {
	return checkedText("path", to, func(s string) bool {
		u, err := url.ParseRequestURI(s)
		return err == nil && s[0] == '/' && u.Fragment == ""
	}, "write a path, such as /healthz", pathShape)
}

// files are those that the section names.
func (g *Gateway) files() []*string {
	all := []*string{&g.TLS.Cert, &g.TLS.Key, &g.TLS.ClientCA}
	if g.AccessLog.File != "-" {
		all = append(all, &g.AccessLog.File)
	}
	for i := range g.Upstreams {
		t := &g.Upstreams[i].TLS
		all = append(all, &t.CA, &t.Cert, &t.Key)
	}
	return all
}
