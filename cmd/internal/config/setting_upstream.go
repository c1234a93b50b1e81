package config

import (
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/sluiceproject/sluice/internal/strictyaml"
)

// Upstream is a group of servers that serve the same requests.
type Upstream struct {
	Name          string
	Servers       []string
	LoadBalancing string
	HashBy        string // for LoadBalancing hash: an attribute as in rules

	HealthCheck      HealthCheck
	OutlierDetection OutlierDetection
	Timeouts         Timeouts
	Retries          int64
	TLS              ClientTLS
	ServerName       string
}

// HealthCheck are the active health checks of servers. Without a path they are disabled.
type HealthCheck struct {
	Path                                 string
	Interval, Timeout                    time.Duration
	HealthyThreshold, UnhealthyThreshold int64 // consecutive checks
}

// OutlierDetection ejects servers after consecutive failed requests.
type OutlierDetection struct {
	ConsecutiveFailures int64
	EjectionTime        time.Duration
}

// Timeouts are the timeouts of requests to an upstream.
type Timeouts struct {
	Connect, ResponseHeader, Idle time.Duration
}

func (u *Upstream) keys() []Setting {
	return []Setting{
		{"servers", servers(&u.Servers), "", "URLs of the servers: `http://host:port`, `https://…`, or `h2c://…` for HTTP/2 without TLS, as gRPC servers use; required"},
		{"load_balancing", word(&u.LoadBalancing, "round_robin", "least_request", "hash"), "round_robin", "choice of the next server: each in turn (`round_robin`), the fewest requests in flight (`least_request`), always the same for the same `hash_by` (`hash`)"},
		{"hash_by", hashBy(&u.HashBy), "ip", "attribute for `load_balancing: hash`: `ip`, `path`, `header:NAME` or `cookie:NAME`"},
		{"health_check.path", path(&u.HealthCheck.Path), "", "path of health checks (GET); statuses 200 to 399 are successful. Without it, servers are not checked"},
		{"health_check.interval", interval(&u.HealthCheck.Interval, 100*time.Millisecond), "5s", "interval between health checks, ± 10 %, at least `100ms`"},
		{"health_check.timeout", duration(&u.HealthCheck.Timeout), "1s", "timeout of a health check"},
		{"health_check.healthy_threshold", number(&u.HealthCheck.HealthyThreshold, 1, 100), "2", "consecutive successful health checks before an unhealthy server is used again"},
		{"health_check.unhealthy_threshold", number(&u.HealthCheck.UnhealthyThreshold, 1, 100), "3", "consecutive failed health checks before a server is unhealthy and no longer used"},
		{"outlier_detection.consecutive_failures", number(&u.OutlierDetection.ConsecutiveFailures, 1, 1e6), "5", "consecutive failed requests before a server is ejected. At most 50 % of the servers are ejected, so a single server never is"},
		{"outlier_detection.ejection_time", duration(&u.OutlierDetection.EjectionTime), "10s", "duration of the first ejection; each further one takes twice as long, up to 32 ×"},
		{"timeouts.connect", duration(&u.Timeouts.Connect), "1s", "timeout of connecting to a server; the TLS handshake may take 5 s more"},
		{"timeouts.response_header", duration(&u.Timeouts.ResponseHeader), "30s", "timeout from the end of the request to the response headers of a server"},
		{"timeouts.idle", duration(&u.Timeouts.Idle), "90s", "maximum time without a byte in either direction while a body is transferred"},
		{"retries", number(&u.Retries, 0, 10), "1", "maximum retries of a request that is safe to repeat, each on another server"},
		{"tls.ca_file", file(&u.TLS.CAFile), "", "PEM file of the CAs to verify the servers' certificates with, instead of the system's"},
		{"tls.cert_file", file(&u.TLS.CertFile), "", "PEM file of the client certificate"},
		{"tls.key_file", file(&u.TLS.KeyFile), "", "PEM file of its private key"},
		{"tls.server_name", text("text", &u.ServerName), "", "expected name in the servers' certificates, instead of the host in the URL"},
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

// checkUpstream reports keys of an upstream that are valid alone but not together.
func (d *decoder) checkUpstream(n *strictyaml.Node, what string, u *Upstream) {
	if n.Kind != strictyaml.Mapping {
		return
	}
	if n.Lacks("servers") {
		d.Fault(n, "%s: there are no servers: write servers: [http://127.0.0.1:9000]", what)
	}
	if at := n.Field("hash_by"); at != nil && u.LoadBalancing != "hash" {
		d.Fault(at, "%s.hash_by: is for load_balancing: hash, and this is %s: remove it, or change load_balancing", what, u.LoadBalancing)
	}
	if at := n.Field("health_check"); at != nil && u.HealthCheck.Path == "" {
		d.Fault(at, "%s.health_check: there is no path: write path: /healthz, or remove it", what)
	}
	if at := n.Field("tls"); at != nil {
		secure := false
		for _, s := range u.Servers {
			secure = secure || strings.HasPrefix(s, "https://")
		}
		switch {
		case (u.TLS.CertFile == "") != (u.TLS.KeyFile == ""):
			d.Fault(at, "%s.tls: a certificate and its key go together: set cert_file and key_file, or neither", what)
		case !secure:
			d.Fault(at, "%s.tls: no server uses TLS: begin one of servers with https://, or remove it", what)
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
				continue // already reported
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

// files returns all paths in the section, except those of additional certificates and ACME.
func (g *Gateway) files() []*string {
	all := []*string{&g.TLS.CertFile, &g.TLS.KeyFile, &g.TLS.ClientCAFile}
	if g.AccessLog.File != "-" {
		all = append(all, &g.AccessLog.File)
	}
	for i := range g.Upstreams {
		t := &g.Upstreams[i].TLS
		all = append(all, &t.CAFile, &t.CertFile, &t.KeyFile)
	}
	return all
}
