package config

import (
	"slices"
	"strconv"

	"github.com/sluiceproject/sluice/internal/strictyaml"
)

func (l *Logging) settings() []Setting {
	return []Setting{
		{"logging.level", word(&l.Level, "debug", "info", "warn", "error"), "info", "what is logged"},
		{"logging.format", word(&l.Format, "text", "json"), "text", "how"},
		{"logging.denials", word(&l.Denials, "off", "sampled"), "sampled", "log some of the denials, with level info"},
		{"logging.denials_per_second", number(&l.DenialsPerSecond, 1, 1000), "5", "how many at most; the next line tells how many were left out"},
		{"logging.keys", word(&l.Keys, "masked", "plain", "none"), "masked", "whether these tell whose requests were denied: `masked` has a digest in place of each value, `plain` logs what may be personal data"},
		{"logging.secret_file", file(&l.SecretFile), "", "with a secret for these digests. Processes with the same secret log the same digest for the same value; without one each has its own until it ends"},
	}
}

// collectorSettings are of where something is sent by OTLP.
func collectorSettings(prefix, what string, to *Collector) []Setting {
	return []Setting{
		{prefix + "endpoint", urlText(&to.Endpoint, `^https?://`), "", what + " are sent there by OTLP over gRPC: `http://host:4317`, or `https://` for TLS. Without it nothing is sent, nor made"},
		{prefix + "headers_file", file(&to.HeadersFile), "", "with headers to send along, a `name: value` a line, such as a token; read whenever something is sent"},
		{prefix + "tls.ca", file(&to.TLS.CA), "", "who signs the collector's certificate, PEM, instead of those the system trusts"},
		{prefix + "tls.cert", file(&to.TLS.Cert), "", "the certificate to show to the collector, PEM; read whenever a connection is made"},
		{prefix + "tls.key", file(&to.TLS.Key), "", "its key, PEM"},
	}
}

func (t *Tracing) settings() []Setting {
	return slices.Concat(
		collectorSettings("tracing.", "traces", &t.Collector),
		[]Setting{
			{"tracing.sample", fraction(&t.Sample), "0.01", "of requests that are traced, between 0 and 1. A request that is part of a trace already (`traceparent`) is traced if that is"},
		},
	)
}

func (m *OTLPMetrics) settings() []Setting {
	return slices.Concat(
		collectorSettings("metrics.otlp.", "metrics", &m.Collector),
		[]Setting{
			{"metrics.otlp.interval", duration(&m.Interval), "1m", "how often they are sent"},
		},
	)
}

// fraction reads a number between 0 and 1.
func fraction(to *float64) value {
	return value{"fraction", func(d *decoder, n *strictyaml.Node) {
		f, err := strconv.ParseFloat(n.Text, 64)
		if n.Kind != strictyaml.Scalar || n.Quoted || err != nil || !(f >= 0 && f <= 1) {
			d.Fault(n, "%s: is %s: write a number between 0 and 1, such as 0.01 for one of a hundred", d.name, n)
			return
		}
		*to = f
	}, shape{"type": "number", "minimum": 0, "maximum": 1}}
}

// checkCollector finds settings of a collector that do not go together.
func (d *decoder) checkCollector(name string, c *Collector, at func(string) *strictyaml.Node) {
	n := at(name)
	switch {
	case n == nil || !d.sound(name):
	case c.Endpoint == "":
		d.Fault(n, "%s: there is no endpoint: write endpoint: http://localhost:4317, or remove it", name)
	case !hasScheme(c.Endpoint, "http://", "https://"):
		d.Fault(at(name+".endpoint"), "%s.endpoint: write a URL that begins with http://, or https:// for TLS", name)
	case (c.TLS.Cert == "") != (c.TLS.Key == ""):
		d.Fault(at(name+".tls"), "%s.tls: a certificate and its key go together: set cert and key, or neither", name)
	case c.TLS != (StoreTLS{}) && !hasScheme(c.Endpoint, "https://"):
		d.Fault(at(name+".tls"), "%s.tls: the endpoint is without TLS: let it begin with https://", name)
	}
}
