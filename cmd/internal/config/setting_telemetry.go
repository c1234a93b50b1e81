package config

import (
	"strconv"

	"github.com/sluiceproject/sluice/internal/strictyaml"
)

// loggingSettings are of the log.
var loggingSettings = []Setting{
	{
		"logging.level", "`debug`, `info`, `warn`, `error`", "info",
		"what is logged",
		word(func(c *Config) *string { return &c.Logging.Level }, "debug", "info", "warn", "error"),
	},
	{
		"logging.format", "`text`, `json`", "text",
		"how",
		word(func(c *Config) *string { return &c.Logging.Format }, "text", "json"),
	},
	{
		"logging.denials", "`off`, `sampled`", "sampled",
		"log some of the denials, with level info",
		word(func(c *Config) *string { return &c.Logging.Denials }, "off", "sampled"),
	},
	{
		"logging.denials_per_second", "number", "5",
		"how many at most; the next line tells how many were left out",
		number(func(c *Config) *int64 { return &c.Logging.DenialsPerSecond }, 1, 1000),
	},
	{
		"logging.keys", "`masked`, `plain`, `none`", "masked",
		"whether these tell whose requests were denied: `masked` has a digest in place of each value, `plain` logs what may be personal data",
		word(func(c *Config) *string { return &c.Logging.Keys }, "masked", "plain", "none"),
	},
	{
		"logging.secret_file", "file", "",
		"with a secret for these digests. Processes with the same secret log the same digest for the same value; without one each has its own until it ends",
		text(func(c *Config) *string { return &c.Logging.SecretFile }),
	},
}

// collectorSettings are of where something is sent by OTLP.
func collectorSettings(prefix, what string, to func(*Config) *Collector) []Setting {
	return []Setting{
		{
			prefix + "endpoint", "URL", "",
			what + " are sent there by OTLP over gRPC: `http://host:4317`, or `https://` for TLS. Without it nothing is sent, nor made",
			text(func(c *Config) *string { return &to(c).Endpoint }),
		},
		{
			prefix + "headers_file", "file", "",
			"with headers to send along, a `name: value` a line, such as a token; read whenever something is sent",
			text(func(c *Config) *string { return &to(c).HeadersFile }),
		},
		{
			prefix + "tls.ca", "file", "",
			"who signs the collector's certificate, PEM, instead of those the system trusts",
			text(func(c *Config) *string { return &to(c).TLS.CA }),
		},
		{
			prefix + "tls.cert", "file", "",
			"the certificate to show to the collector, PEM; read whenever a connection is made",
			text(func(c *Config) *string { return &to(c).TLS.Cert }),
		},
		{
			prefix + "tls.key", "file", "",
			"its key, PEM",
			text(func(c *Config) *string { return &to(c).TLS.Key }),
		},
	}
}

// tracingSettings are of traces.
var tracingSettings = join(
	collectorSettings("tracing.", "traces", func(c *Config) *Collector { return &c.Tracing.Collector }),
	[]Setting{
		{
			"tracing.sample", "fraction", "0.01",
			"of requests that are traced, between 0 and 1. A request that is part of a trace already (`traceparent`) is traced if that is",
			fraction(func(c *Config) *float64 { return &c.Tracing.Sample }),
		},
	},
)

// otlpMetricsSettings are of metrics that are sent.
var otlpMetricsSettings = join(
	collectorSettings("metrics.otlp.", "metrics", func(c *Config) *Collector { return &c.Metrics.OTLP.Collector }),
	[]Setting{
		{
			"metrics.otlp.interval", "duration", "1m",
			"how often they are sent",
			duration(func(c *Config) *seconds { return &c.Metrics.OTLP.Interval }),
		},
	},
)

// fraction reads a number between 0 and 1.
func fraction(to func(*Config) *float64) func(*decoder, *strictyaml.Node) {
	return func(d *decoder, n *strictyaml.Node) {
		f, err := strconv.ParseFloat(n.Text, 64)
		if n.Kind != strictyaml.Scalar || err != nil || !(f >= 0 && f <= 1) {
			d.Fault(n, "%s: is %s: write a number between 0 and 1, such as 0.01 for one of a hundred", d.name, n)
			return
		}
		*to(d.to) = f
	}
}

// checkCollector finds settings of a collector that do not go together.
func (d *decoder) checkCollector(name string, c *Collector, at func(string) *strictyaml.Node) {
	n := at(name)
	switch {
	case n == nil:
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
