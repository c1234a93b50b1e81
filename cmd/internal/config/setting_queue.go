package config

import (
	"slices"
	"strings"
	"time"

	"github.com/sluiceproject/sluice/internal/strictyaml"
)

// Queue is where requests are kept that rules have wait there. Without a directory and a URL there is none.
type Queue struct {
	Directory       string // of the server in this process
	URL             string // of NATS servers outside
	CredentialsFile string
	TLS             StoreTLS
	Name            string
	KeyFile         string
	MaxBytes        int64
	MaxCount        int64
	MaxKeyBytes     int64 // 0: a quarter of MaxBytes
	MaxKeyCount     int64 // 0: a quarter of MaxCount
	MaxItem         int64
	MaxResults      int64
	KeepDead        time.Duration // 0: for ever
	Workers         int64
	Timeout         time.Duration
}

func (q *Queue) settings() []Setting {
	return []Setting{
		{"queue.directory", text("directory", &q.Directory), "", "requests that rules with `on_limit: queue` keep are there, written by a JetStream server in this process. One process has it"},
		{"queue.url", urlText(&q.URL, `^\s*(nats|tls)://[^,]*(,\s*(nats|tls)://[^,]*)*$`), "", "instead: NATS servers with JetStream that several gateways share, `nats://host:4222` or `tls://`, several with commas"},
		{"queue.credentials_file", file(&q.CredentialsFile), "", "with the credentials for them, as `nsc` writes it"},
		{"queue.tls.ca", file(&q.TLS.CA), "", "who signs their certificates, PEM, instead of those the system trusts"},
		{"queue.tls.cert", file(&q.TLS.Cert), "", "the certificate to show them, PEM"},
		{"queue.tls.key", file(&q.TLS.Key), "", "its key, PEM"},
		{"queue.name", text("text", &q.Name), "sluice", "in front of the streams' names. Gateways with the same name share a queue"},
		{"queue.key_file", file(&q.KeyFile), "", "with 64 hexadecimal digits, such as `openssl rand -hex 32` writes: what is kept is encrypted with them (AES-256-GCM)"},
		{"queue.max_size", size(&q.MaxBytes, 1<<20, 1<<40), "1GiB", "of all requests that are kept, dead ones too; then callers are answered 503"},
		{"queue.max_count", number(&q.MaxCount, 1, 1e7), "100000", "how many there may be; a process remembers about 600 bytes of each"},
		{"queue.max_size_per_key", size(&q.MaxKeyBytes, 4<<10, 1<<40), "", "of the requests of one rule and key, or of one client address (IPv6: /64) under a rule without `per`; then callers are answered 429. Without it 25 % of `max_size`"},
		{"queue.max_count_per_key", number(&q.MaxKeyCount, 1, 1e7), "", "how many of one rule and key, or of one client address, there may be. Without it 25 % of `max_count`"},
		{"queue.max_item_size", size(&q.MaxItem, 4<<10, 8<<20), "1MiB", "of one request with its headers; larger ones are answered 413. NATS servers have their own bound, 1 MiB unless told otherwise"},
		{"queue.max_results", size(&q.MaxResults, 1<<20, 1<<40), "256MiB", "of all results that are kept; then the oldest are dropped"},
		{"queue.keep_dead", durationOrNone(&q.KeepDead), "168h", "for how long requests are kept that failed for good; `0s` is until somebody removes them"},
		{"queue.workers", number(&q.Workers, 1, 10000), "16", "how many this process delivers at a time"},
		{"queue.timeout", duration(&q.Timeout), "1m", "how long one delivery may take"},
	}
}

// On reports whether there is a queue.
func (q *Queue) On() bool { return q.Directory != "" || q.URL != "" }

func (d *decoder) checkQueue(at func(string) *strictyaml.Node) {
	q := &d.to.Queue
	switch n := at("queue"); {
	case n == nil || !d.sound("queue.directory", "queue.url"):
		return
	case !q.On():
		d.Fault(n, "queue: say where it is: directory: /var/lib/sluice/queue, or url: nats://host:4222")
	case q.Directory != "" && q.URL != "":
		d.Fault(n, "queue: it is either in a directory or at a url: remove one of them")
	case q.URL != "" && slices.ContainsFunc(strings.Split(q.URL, ","), func(u string) bool {
		return !hasScheme(strings.TrimSpace(u), "nats://", "tls://")
	}):
		d.Fault(at("queue.url"), "queue.url: write a URL that begins with nats://, or tls:// for TLS")
	}
	for _, name := range []string{"queue.credentials_file", "queue.tls"} {
		if n := at(name); n != nil && q.URL == "" {
			d.Fault(n, "%s: is for servers outside: remove it, or set url instead of directory", name)
		}
	}
	if n := at("queue.tls"); n != nil && (q.TLS.Cert == "") != (q.TLS.Key == "") && d.sound("queue.tls") {
		d.Fault(n, "queue.tls: a certificate and its key go together: set cert and key, or neither")
	}
}
