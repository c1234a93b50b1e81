package config

import (
	"strings"

	"github.com/sluiceproject/sluice/internal/strictyaml"
)

// renamed lists the old and new paths of keys that were renamed before the first release. The * is the name of an upstream.
// Delete this file and its uses with the first release.
var renamed = []struct{ old, new string }{
	{"listeners.grpc.tls.cert", "listeners.grpc.tls.cert_file"},
	{"listeners.grpc.tls.key", "listeners.grpc.tls.key_file"},
	{"listeners.grpc.tls.client_ca", "listeners.grpc.tls.client_ca_file"},
	{"listeners.http.tls.cert", "listeners.http.tls.cert_file"},
	{"listeners.http.tls.key", "listeners.http.tls.key_file"},
	{"listeners.http.tls.client_ca", "listeners.http.tls.client_ca_file"},
	{"listeners.resp.tls.cert", "listeners.resp.tls.cert_file"},
	{"listeners.resp.tls.key", "listeners.resp.tls.key_file"},
	{"listeners.resp.tls.client_ca", "listeners.resp.tls.client_ca_file"},
	{"listeners.gateway.tls.cert", "listeners.gateway.tls.cert_file"},
	{"listeners.gateway.tls.key", "listeners.gateway.tls.key_file"},
	{"listeners.gateway.tls.client_ca", "listeners.gateway.tls.client_ca_file"},
	{"listeners.gateway.certificates.cert", "listeners.gateway.certificates.cert_file"},
	{"listeners.gateway.certificates.key", "listeners.gateway.certificates.key_file"},
	{"listeners.gateway.acme.directory", "listeners.gateway.acme.directory_url"},
	{"listeners.gateway.acme.cache", "listeners.gateway.acme.cache_dir"},
	{"listeners.gateway.acme.http", "listeners.gateway.acme.http_address"},
	{"listeners.gateway.acme.ca", "listeners.gateway.acme.ca_file"},
	{"listeners.admin.tls.cert", "listeners.admin.tls.cert_file"},
	{"listeners.admin.tls.key", "listeners.admin.tls.key_file"},
	{"listeners.admin.tls.client_ca", "listeners.admin.tls.client_ca_file"},
	{"listeners.drain.wait", "listeners.drain.delay"},
	{"store.budget", "store.timeout"},
	{"store.memory", "store.max_memory"},
	{"store.servers", "store.addresses"},
	{"store.prefix", "store.key_prefix"},
	{"store.snapshot", "store.snapshot_file"},
	{"store.tls.ca", "store.tls.ca_file"},
	{"store.tls.cert", "store.tls.cert_file"},
	{"store.tls.key", "store.tls.key_file"},
	{"rls.overrides", "rls.accept_limit_overrides"},
	{"rls.negative_hits", "rls.accept_negative_hits"},
	{"rls.shadow", "rls.shadow_mode"},
	{"rls.quota", "rls.quota_mode"},
	{"rls.metadata", "rls.dynamic_metadata"},
	{"rls.clients", "rls.client_domains"},
	{"gateway.allow", "gateway.allowed_ips"},
	{"gateway.deny", "gateway.denied_ips"},
	{"gateway.access_log.query", "gateway.access_log.include_query"},
	{"gateway.routes.send_host", "gateway.routes.host_header"},
	{"gateway.routes.max_body", "gateway.routes.max_body_size"},
	{"gateway.routes.anonymous", "gateway.routes.allow_anonymous"},
	{"gateway.upstreams.*.balance", "gateway.upstreams.*.load_balancing"},
	{"gateway.upstreams.*.health", "gateway.upstreams.*.health_check"},
	{"gateway.upstreams.*.health.healthy", "gateway.upstreams.*.health_check.healthy_threshold"},
	{"gateway.upstreams.*.health.unhealthy", "gateway.upstreams.*.health_check.unhealthy_threshold"},
	{"gateway.upstreams.*.eject", "gateway.upstreams.*.outlier_detection"},
	{"gateway.upstreams.*.eject.failures", "gateway.upstreams.*.outlier_detection.consecutive_failures"},
	{"gateway.upstreams.*.eject.rest", "gateway.upstreams.*.outlier_detection.ejection_time"},
	{"gateway.upstreams.*.timeouts.header", "gateway.upstreams.*.timeouts.response_header"},
	{"gateway.upstreams.*.tls.ca", "gateway.upstreams.*.tls.ca_file"},
	{"gateway.upstreams.*.tls.cert", "gateway.upstreams.*.tls.cert_file"},
	{"gateway.upstreams.*.tls.key", "gateway.upstreams.*.tls.key_file"},
	{"authentication.api_keys.forward", "authentication.api_keys.forward_credentials"},
	{"authentication.jwt.jwks_ca", "authentication.jwt.jwks_ca_file"},
	{"authentication.jwt.jwks_plain", "authentication.jwt.allow_insecure_jwks_url"},
	{"authentication.jwt.forward", "authentication.jwt.forward_credentials"},
	{"authentication.basic.forward", "authentication.basic.forward_credentials"},
	{"authentication.wrong_attempts", "authentication.failed_attempts"},
	{"queue.tls.ca", "queue.tls.ca_file"},
	{"queue.tls.cert", "queue.tls.cert_file"},
	{"queue.tls.key", "queue.tls.key_file"},
	{"queue.name", "queue.stream_prefix"},
	{"queue.key_file", "queue.encryption_key_file"},
	{"queue.max_size", "queue.max_total_size"},
	{"queue.max_count", "queue.max_items"},
	{"queue.max_size_per_key", "queue.max_total_size_per_key"},
	{"queue.max_count_per_key", "queue.max_items_per_key"},
	{"queue.max_results", "queue.max_results_size"},
	{"queue.keep_dead", "queue.dead_letter_ttl"},
	{"queue.timeout", "queue.delivery_timeout"},
	{"auth", "forward_auth"},
	{"auth.max_wait", "forward_auth.max_delay"},
	{"check", "check_api"},
	{"check.secret_file", "check_api.reservation_secret_file"},
	{"metrics.on_http", "metrics.http_listener"},
	{"metrics.public", "metrics.allow_unauthenticated"},
	{"metrics.otlp.tls.ca", "metrics.otlp.tls.ca_file"},
	{"metrics.otlp.tls.cert", "metrics.otlp.tls.cert_file"},
	{"metrics.otlp.tls.key", "metrics.otlp.tls.key_file"},
	{"admin.hosts", "admin.allowed_hosts"},
	{"tracing.sample", "tracing.sample_ratio"},
	{"tracing.tls.ca", "tracing.tls.ca_file"},
	{"tracing.tls.cert", "tracing.tls.cert_file"},
	{"tracing.tls.key", "tracing.tls.key_file"},
}

// removed lists the paths of removed keys, and why they are not needed.
var removed = map[string]string{"rls.max_bytes": "values of any length are counted"}

// newName returns the new path of a renamed key, or "" if it was not renamed. The sections in path may have old or new names.
func newName(path string) string {
	for _, r := range renamed {
		for _, old := range []string{r.old, sibling(r.new, r.old)} {
			before, after, any := strings.Cut(old, "*")
			switch {
			case path == old:
				return r.new
			case any && len(path) > len(before)+len(after) && strings.HasPrefix(path, before) && strings.HasSuffix(path, after):
				return strings.Replace(r.new, "*", path[len(before):len(path)-len(after)], 1)
			}
		}
	}
	return ""
}

// sibling returns path with its last key replaced by the last key of other.
func sibling(path, other string) string {
	return path[:strings.LastIndexByte(path, '.')+1] + other[strings.LastIndexByte(other, '.')+1:]
}

// renamedKey reports a renamed key of section s. If the key is a section, it also reads its keys, to report their errors.
func (d *decoder) renamedKey(field strictyaml.Field, s *section, what string) {
	path := under(what, field.Key.Text)
	name := newName(path)
	d.Fault(field.Key, "%s: renamed: write %s", path, name)
	d.broken = append(d.broken, name)
	if below := s.below[name[strings.LastIndexByte(name, '.')+1:]]; below != nil && below.read == nil {
		d.section(field.Value, below, path)
	}
}

// hasRenamedSection reports whether a file has a section with its old name.
func hasRenamedSection(root *strictyaml.Node) bool {
	for _, r := range renamed {
		if !strings.Contains(r.old, ".") && root.Field(r.old) != nil {
			return true
		}
	}
	return false
}
