package config

import (
	"slices"
	"strings"
	"time"

	"github.com/sluiceproject/sluice/internal/strictyaml"
)

// Queue is the durable queue of rules with on_limit: queue. Without a directory and a URL it is disabled.
type Queue struct {
	Directory          string // of the embedded JetStream server
	URL                string // of external NATS servers
	CredentialsFile    string
	TLS                ClientTLS
	StreamPrefix       string
	EncryptionKeyFile  string
	MaxTotalSize       int64
	MaxItems           int64
	MaxTotalSizePerKey int64 // 0: 25 % of MaxTotalSize
	MaxItemsPerKey     int64 // 0: 25 % of MaxItems
	MaxItemSize        int64
	MaxResultsSize     int64
	DeadLetterTTL      time.Duration // 0: forever
	Workers            int64
	DeliveryTimeout    time.Duration
}

func (q *Queue) settings() []Setting {
	return []Setting{
		{"queue.directory", text("directory", &q.Directory), "", "directory of the durable queue of requests under rules with `on_limit: queue`, stored by an embedded JetStream server. Only one process may use it"},
		{"queue.url", urlText(&q.URL, `^\s*(nats|tls)://[^,]*(,\s*(nats|tls)://[^,]*)*$`), "", "URLs of NATS servers with JetStream, `nats://host:4222` or `tls://`, separated by commas. Instead of `directory`, for a queue that several gateways share"},
		{"queue.credentials_file", file(&q.CredentialsFile), "", "file with the NATS credentials, as `nsc` writes it"},
		{"queue.tls.ca_file", file(&q.TLS.CAFile), "", "PEM file of the CAs to verify the NATS servers' certificates with, instead of the system's"},
		{"queue.tls.cert_file", file(&q.TLS.CertFile), "", "PEM file of the client certificate"},
		{"queue.tls.key_file", file(&q.TLS.KeyFile), "", "PEM file of its private key"},
		{"queue.stream_prefix", text("text", &q.StreamPrefix), "sluice", "prefix of the names of the streams. Gateways with the same prefix share a queue"},
		{"queue.encryption_key_file", file(&q.EncryptionKeyFile), "", "file with the encryption key, 64 hexadecimal digits, such as `openssl rand -hex 32` writes. Encrypts all stored data with AES-256-GCM. Default: no encryption"},
		{"queue.max_total_size", size(&q.MaxTotalSize, 1<<20, 1<<40), "1GiB", "maximum total size of stored items, dead letters included; further requests get 503"},
		{"queue.max_items", number(&q.MaxItems, 1, 1e7), "100000", "maximum stored items, dead letters included; further requests get 503. An item takes about 600 bytes of memory in each gateway"},
		{"queue.max_total_size_per_key", size(&q.MaxTotalSizePerKey, 4<<10, 1<<40), "", "maximum total size of the items of one rule and key, or of one client address (IPv6: /64) under a rule without `per`; further requests get 429. Default: 25 % of `max_total_size`"},
		{"queue.max_items_per_key", number(&q.MaxItemsPerKey, 1, 1e7), "", "maximum stored items of one rule and key, or of one client address (IPv6: /64) under a rule without `per`; further requests get 429. Default: 25 % of `max_items`"},
		{"queue.max_item_size", size(&q.MaxItemSize, 4<<10, 8<<20), "1MiB", "maximum size of one request with its headers; larger ones get 413. NATS servers have their own maximum, 1 MiB by default"},
		{"queue.max_results_size", size(&q.MaxResultsSize, 1<<20, 1<<40), "256MiB", "maximum total size of stored results; beyond it, the oldest are removed"},
		{"queue.dead_letter_ttl", durationOrNone(&q.DeadLetterTTL), "168h", "lifetime of dead letters; `0s` means until an operator removes them"},
		{"queue.workers", number(&q.Workers, 1, 10000), "16", "maximum concurrent deliveries of this process"},
		{"queue.delivery_timeout", duration(&q.DeliveryTimeout), "1m", "timeout of one delivery attempt"},
	}
}

// On reports whether the queue is enabled.
func (q *Queue) On() bool { return q.Directory != "" || q.URL != "" }

func (d *decoder) checkQueue(at func(string) *strictyaml.Node) {
	q := &d.to.Queue
	urls := strings.Split(q.URL, ",")
	wrong := slices.IndexFunc(urls, func(u string) bool { return !hasScheme(strings.TrimSpace(u), "nats://", "tls://") })
	switch n := at("queue"); {
	case n == nil || !d.sound("queue.directory", "queue.url"):
		return
	case !q.On():
		d.Fault(n, "queue: there is no directory and no url: write directory: /var/lib/sluice/queue, or url: nats://host:4222")
	case q.Directory != "" && q.URL != "":
		d.Fault(n, "queue: directory and url are both set: remove one of them")
	case q.URL != "" && wrong >= 0:
		d.Fault(at("queue.url"), "queue.url: %s: write a URL that begins with nats://, or tls:// for TLS", schemeOf(strings.TrimSpace(urls[wrong])))
	}
	for _, name := range []string{"queue.credentials_file", "queue.tls"} {
		if n := at(name); n != nil && q.URL == "" {
			d.Fault(n, "%s: is for external NATS servers: remove it, or set url instead of directory", name)
		}
	}
	if n := at("queue.tls"); n != nil && (q.TLS.CertFile == "") != (q.TLS.KeyFile == "") && d.sound("queue.tls") {
		d.Fault(n, "queue.tls: a certificate and its key go together: set cert_file and key_file, or neither")
	}
}
