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

var upstreamKeys = []key[Upstream]{
	{
		"servers", "list of URLs", "",
		"`http://host:port`, `https://…`, or `h2c://…` for HTTP/2 without TLS, as gRPC servers speak",
		func(u *Upstream) reader { return servers(&u.Servers) },
	},
	{
		"balance", "`round_robin`, `least_requests`, `hash`", "round_robin",
		"which server is next: each in turn; that with the fewest requests; always the same for the same `hash_by`",
		func(u *Upstream) reader {
			return word(func(*Config) *string { return &u.Balance }, "round_robin", "least_requests", "hash")
		},
	},
	{
		"hash_by", "attribute", "ip",
		"with `balance: hash`: `ip`, `path`, `header:NAME` or `cookie:NAME`",
		func(u *Upstream) reader { return hashBy(&u.HashBy) },
	},
	{
		"health.path", "path", "",
		"what servers are asked, again and again; without it they are not",
		func(u *Upstream) reader { return path(&u.Health.Path) },
	},
	{
		"health.interval", "duration", "5s",
		"how often",
		func(u *Upstream) reader { return duration(func(*Config) *seconds { return &u.Health.Interval }) },
	},
	{
		"health.timeout", "duration", "1s",
		"how long the answer may take",
		func(u *Upstream) reader { return duration(func(*Config) *seconds { return &u.Health.Timeout }) },
	},
	{
		"health.healthy", "number", "2",
		"good answers in a row after which a server is used again",
		func(u *Upstream) reader { return number(func(*Config) *int64 { return &u.Health.Healthy }, 1, 100) },
	},
	{
		"health.unhealthy", "number", "3",
		"bad ones after which it is not",
		func(u *Upstream) reader { return number(func(*Config) *int64 { return &u.Health.Unhealthy }, 1, 100) },
	},
	{
		"eject.failures", "number", "5",
		"requests in a row that a server fails, after which it rests; at most half of the servers rest, so a single one never does",
		func(u *Upstream) reader { return number(func(*Config) *int64 { return &u.Failures }, 1, 1e6) },
	},
	{
		"eject.rest", "duration", "10s",
		"for how long",
		func(u *Upstream) reader { return duration(func(*Config) *seconds { return &u.Rest }) },
	},
	{
		"timeouts.connect", "duration", "1s",
		"how long a connection may take; TLS may take 5s more",
		func(u *Upstream) reader { return duration(func(*Config) *seconds { return &u.Connect }) },
	},
	{
		"timeouts.header", "duration", "30s",
		"how long a server may take to begin its answer, once it has the request",
		func(u *Upstream) reader { return duration(func(*Config) *seconds { return &u.Header }) },
	},
	{
		"timeouts.idle", "duration", "90s",
		"how long nothing may come, in either direction, while a body is sent",
		func(u *Upstream) reader { return duration(func(*Config) *seconds { return &u.Idle }) },
	},
	{
		"retries", "number", "1",
		"how often a request that is safe to repeat is sent to another server",
		func(u *Upstream) reader { return number(func(*Config) *int64 { return &u.Retries }, 0, 10) },
	},
	{
		"tls.ca", "file", "",
		"who signs the servers' certificates, PEM, instead of those the system trusts",
		func(u *Upstream) reader { return text(func(*Config) *string { return &u.TLS.CA }) },
	},
	{
		"tls.cert", "file", "",
		"the certificate to show to the servers, PEM",
		func(u *Upstream) reader { return text(func(*Config) *string { return &u.TLS.Cert }) },
	},
	{
		"tls.key", "file", "",
		"its key, PEM",
		func(u *Upstream) reader { return text(func(*Config) *string { return &u.TLS.Key }) },
	},
	{
		"tls.server_name", "text", "",
		"the name that the servers' certificates must have, instead of that in the URL",
		func(u *Upstream) reader { return text(func(*Config) *string { return &u.ServerName }) },
	},
}

var upstreamName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)

func (d *decoder) upstreams(n *strictyaml.Node) {
	if !d.IsMapping(n, d.name) {
		return
	}
	what := d.name
	var all []Upstream
	for _, field := range n.Fields {
		name := field.Key.Text
		if !upstreamName.MatchString(name) {
			d.Fault(field.Key, "%s: %s is not a name: use letters, digits, - and _", what, strictyaml.Quote(name))
			continue
		}
		u := Upstream{Name: name}
		if readEntry(d, field.Value, under(what, name), upstreamKeys, &u) {
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
	if n.Field("servers") == nil {
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

func servers(to *[]string) reader {
	return func(d *decoder, n *strictyaml.Node) {
		texts(func(*Config) *[]string { return to })(d, n)
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
	}
}

func hashBy(to *string) reader {
	return func(d *decoder, n *strictyaml.Node) {
		s, ok := d.String(n, d.name)
		if !ok {
			return
		}
		kind, name, named := strings.Cut(s, ":")
		if !(s == "ip" || s == "path" || named && name != "" && (kind == "header" || kind == "cookie")) {
			d.Fault(n, "%s: is %s: write ip, path, header:NAME or cookie:NAME", d.name, n)
			return
		}
		*to = s
	}
}

func path(to *string) reader {
	return func(d *decoder, n *strictyaml.Node) {
		s, ok := d.String(n, d.name)
		if !ok {
			return
		}
		if u, err := url.ParseRequestURI(s); err != nil || s[0] != '/' || u.Fragment != "" {
			d.Fault(n, "%s: is %s: write a path, such as /healthz", d.name, n)
			return
		}
		*to = s
	}
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

// UpstreamTable is the table of an upstream's keys in Markdown.
func UpstreamTable() string { return keyTable(upstreamKeys) }
