package config

import (
	"slices"
	"strconv"
	"time"

	"github.com/sluiceproject/sluice/internal/strictyaml"
)

func (l *Logging) settings() []Setting {
	return []Setting{
		{"logging.level", word(&l.Level, "debug", "info", "warn", "error"), "info", "minimum level of log lines"},
		{"logging.format", word(&l.Format, "text", "json"), "text", "format of log lines"},
		{"logging.denials", word(&l.Denials, "off", "sampled"), "sampled", "log a sample of the denials at level info, or none (`off`)"},
		{"logging.denials_per_second", number(&l.DenialsPerSecond, 1, 1000), "5", "maximum logged denials per second; the next line contains the number of suppressed ones"},
		{"logging.keys", word(&l.Keys, "masked", "plain", "none"), "masked", "keys in lines about denials: `masked` logs a digest of each value, `plain` the values, which may be personal data, `none` no keys"},
		{"logging.secret_file", file(&l.SecretFile), "", "file with the secret of the digests in lines about denials, at least 16 bytes. Instances with the same secret log the same digest for the same value. Without it, each process uses a random secret"},
	}
}

// collectorSettings returns the settings of an OTLP collector. What is the exported data; otherwise completes "Without it, …".
func collectorSettings(prefix, what, otherwise string, to *Collector) []Setting {
	return []Setting{
		{prefix + "endpoint", urlText(&to.Endpoint, `^https?://`), "", "OTLP/gRPC endpoint for " + what + ": `http://host:4317`, or `https://` for TLS. Without it, " + otherwise},
		{prefix + "headers_file", file(&to.HeadersFile), "", "file of headers to send to the collector, one `name: value` per line, such as a token. Read for each export"},
		{prefix + "tls.ca_file", file(&to.TLS.CAFile), "", "PEM file of the CAs to verify the collector's certificate with, instead of the system's"},
		{prefix + "tls.cert_file", file(&to.TLS.CertFile), "", "PEM file of the client certificate. Read for each new connection"},
		{prefix + "tls.key_file", file(&to.TLS.KeyFile), "", "PEM file of its private key"},
	}
}

func (t *Tracing) settings() []Setting {
	return slices.Concat(
		collectorSettings("tracing.", "traces", "requests are not traced", &t.Collector),
		[]Setting{
			{"tracing.sample_ratio", fraction(&t.SampleRatio), "0.01", "ratio of traced requests, 0 to 1. A request that is part of a trace (`traceparent`) is traced if that trace is sampled"},
		},
	)
}

func (m *OTLPMetrics) settings() []Setting {
	return slices.Concat(
		collectorSettings("metrics.otlp.", "metrics", "metrics are not sent", &m.Collector),
		[]Setting{
			{"metrics.otlp.interval", interval(&m.Interval, time.Second), "1m", "interval between exports, at least `1s`"},
		},
	)
}

// fraction is a number between 0 and 1.
func fraction(to *float64) value {
	return value{"number, 0–1", func(d *decoder, n *strictyaml.Node) {
		f, err := strconv.ParseFloat(n.Text, 64)
		if n.Kind != strictyaml.Scalar || n.Quoted || err != nil || !(f >= 0 && f <= 1) {
			d.Fault(n, "%s: is %s: write a number between 0 and 1, such as 0.01 for 1 %%", d.name, n)
			return
		}
		*to = f
	}, shape{"type": "number", "minimum": 0, "maximum": 1}}
}

// checkCollector reports settings of a collector that are invalid together.
func (d *decoder) checkCollector(name string, c *Collector, at func(string) *strictyaml.Node) {
	n := at(name)
	switch {
	case n == nil || !d.sound(name):
	case c.Endpoint == "":
		d.Fault(n, "%s: there is no endpoint: write endpoint: http://localhost:4317, or remove it", name)
	case !hasScheme(c.Endpoint, "http://", "https://"):
		d.Fault(at(name+".endpoint"), "%s.endpoint: %s: write a URL that begins with http://, or https:// for TLS", name, schemeOf(c.Endpoint))
	case (c.TLS.CertFile == "") != (c.TLS.KeyFile == ""):
		d.Fault(at(name+".tls"), "%s.tls: a certificate and its key go together: set cert_file and key_file, or neither", name)
	case c.TLS != (ClientTLS{}) && !hasScheme(c.Endpoint, "https://"):
		d.Fault(at(name+".tls"), "%s.tls: the endpoint does not use TLS: begin it with https://", name)
	}
}
