package schematest

import "strings"

// The grammars of test files (docs/rule-tests.md), of files in Envoy's format (docs/envoy-rules.md), and of the
// configuration of sluice serve (docs/settings.md, docs/gateway.md).

// tests returns a test file.
func (g generator) tests() *tree {
	n := fields("rules", g.maybe(func() *tree { return g.oneOrSome(func() *tree { return g.one("posts.yaml", "5", "true") }) }),
		"start", g.maybeOne("2026-01-31T14:59:59Z", "2026-01-01", "2026-01-01T00:00:00.5+09:00", `"2026-01-01"`, "2026-02-30"), "tests", &tree{kind: list})
	all := n.fields[len(n.fields)-1].value
	for _, name := range []string{"", "", g.one("5", "true", `"two at once"`).text, g.name()}[2+g.IntN(2):] {
		all.items = append(all.items, fields("name", g.one(name), "requests", g.requests()))
	}
	return n
}

func (g generator) requests() *tree {
	if g.IntN(50) == 0 {
		return &tree{kind: list, items: []*tree{fields("at", g.duration(), "request", g.request(), "expect", g.one("allow"))}}
	}
	all := []string{"0", "0s", "0ms", "1ms", "500ms", "1s", "1.5s", "1h30m", "7d", "1w"}
	times := all
	n := &tree{kind: list}
	reserved := false
	for range 1 + g.IntN(2) {
		at := g.IntN(len(times))
		times = times[at:]
		clock := g.one(times[0])
		if n.items == nil && g.IntN(2) == 0 {
			clock, times = nil, all
		}
		switch kind := g.IntN(6); {
		case kind == 0:
			n.items = append(n.items, fields("at", clock, "request", g.request(), "reserve", g.one("1", "5"), "as", g.one(g.name()), "expect", g.one("allow", "deny"), "rule", g.maybeOne("r", "5")))
		case kind == 1 && !reserved:
			reserved = true
			n.items = append(n.items, fields("at", clock, "request", g.request(), "reserve", g.one("1", "5"), "as", g.one("a"), "expect", g.one("allow")),
				fields("at", g.one(times[0]), "settle", fields("a", g.one("0", "5", "1125899906842624")), "rule", g.maybeOne("r", "5", "true"), "remaining", g.maybe(g.remaining), "forgiven", g.maybeOne("0", "5")))
		case kind == 2:
			entries := func() *tree {
				return fields("auth_type", g.either(g.plain, func() *tree { return g.some(g.plain) }), `"5"`, g.maybe(g.plain))
			}
			n.items = append(n.items, g.expect(fields("at", clock, "descriptor", fields("domain", g.one("auth", "5", "true"), "entries", g.oneOrSome(entries)), "hits", g.maybeOne("1", "5"))))
		default:
			pairs := func(names ...string) *tree {
				return g.maybe(func() *tree { return fields(g.one(names...).text, g.oneOrSome(g.plain)) })
			}
			values := func() *tree { return fields("sub", g.plain(), `"5"`, g.maybe(g.plain)) }
			n.items = append(n.items, g.expect(fields("at", clock, "request", g.request(), "headers", pairs("X-User", "X-User", `"5"`, "Host"), "cookies", pairs("session", "c"),
				"claims", g.maybe(values), "attributes", g.maybe(values), "ip", g.maybeOne("192.0.2.1", "2001:db8::1", "::1", `"::ffff:192.0.2.1"`),
				"status", g.maybeOne("200", "401", "599"), "actual_cost", g.maybeOne("0", "120"), "duration", g.maybeOne("5s", "0s", "0", "0ms"))))
		}
	}
	return n
}

func (g generator) plain() *tree { return g.one("ada", "5", "true", "1.5", `""`, `"a b"`) }

func (g generator) request() *tree {
	return g.one("POST /posts", "GET /", "/posts?draft=1", "GET https://api.example.com/users/7", "https://a.example.com", `"GET   /a"`, "PURGE http://a:80/b?c", "GET http://a?b")
}

func (g generator) remaining() *tree {
	return g.either(func() *tree { return g.one("0", "7") }, func() *tree { return fields("r", g.one("0", "7"), `"5"`, g.maybeOne("1")) })
}

// expect adds the expected outcome of a request.
func (g generator) expect(n *tree) *tree {
	add := func(more *tree) *tree {
		n.fields = append(n.fields, more.fields...)
		return n
	}
	text := func() *tree { return g.one("r", "5", "true", "r#2") }
	after := func() *tree { return g.one("0s", "0", "0ms", "500ms", "1m") }
	switch g.IntN(5) {
	case 0:
		return add(fields("expect", g.one("reject", "unlimited"), "times", g.maybeOne("1", "3", "1000")))
	case 1:
		return add(fields("expect", g.one("deny"), "retry_after", g.maybe(after), "rule", g.maybe(text), "remaining", g.maybe(g.remaining), "times", g.maybeOne("2")))
	case 2:
		return add(fields("expect", g.one("allow"), "delay", g.maybe(after), "shadow", g.maybe(text), "rule", g.maybe(text), "times", g.maybeOne("2")))
	case 3:
		return add(fields("expect", fields("allow", g.one("2"), "deny", g.one("1", "1", "0")), "times", g.maybeOne("3", "2"), "shadow", g.maybe(text)))
	}
	return add(fields("expect", fields(g.one("allow", "deny").text, g.one("3", "1"))))
}

// envoy returns a file in the format of Envoy's rate limit service.
func (g generator) envoy() *tree {
	return fields("domain", g.one("messaging", "5", "true"), "descriptors", g.either(
		func() *tree { return g.descriptors(0) }, func() *tree { return g.descriptors(0) },
		func() *tree { return g.one("", "null") }, func() *tree { return &tree{kind: list} }))
}

func (g generator) descriptors(depth int) *tree {
	n := &tree{kind: list}
	for i := range 1 + g.IntN(2) {
		key := &tree{text: string(rune('a'+i)) + g.name()}
		if g.IntN(4) == 0 && i == 0 {
			key = g.one("5", "true")
		}
		d := fields("key", key, "value", g.maybeOne("marketing", "files/*", "5", "true", "", `""`),
			"rate_limit", g.maybe(func() *tree {
				return g.either(func() *tree { return g.rateLimit(true) }, func() *tree { return g.some(func() *tree { return g.rateLimit(false) }) }, func() *tree { return g.one("", "~") })
			}),
			"shadow_mode", g.maybe(g.envoyFlag), "quota_mode", g.maybe(g.envoyFlag), "detailed_metric", g.maybe(g.envoyFlag), "value_to_metric", g.maybe(g.envoyFlag),
			"share_threshold", g.maybeOne("false", "no", "~"),
			"metadata", g.maybe(func() *tree {
				return g.either(func() *tree {
					return fields("owner", g.plain(), "list", g.maybe(func() *tree { return g.some(g.plain) }))
				}, func() *tree { return g.one("~") })
			}))
		if depth < 2 && g.IntN(2) == 0 {
			d.fields = append(d.fields, fields("descriptors", g.descriptors(depth+1)).fields...)
		}
		n.items = append(n.items, d)
	}
	return n
}

func (g generator) envoyFlag() *tree {
	return g.one("true", "false", "True", "FALSE", "yes", "No", "on", "OFF", "y", "N", "~", "")
}

func (g generator) rateLimit(alone bool) *tree {
	replaces := g.maybe(func() *tree {
		return g.either(func() *tree {
			return g.some(func() *tree { return fields("name", g.one("other"+g.name(), "5", "true")) })
		}, func() *tree { return g.one("~") })
	})
	if alone && g.IntN(4) == 0 {
		return fields("unlimited", g.one("true", "yes", "On", "Y"), "name", g.maybeOne("n"+g.name()), "replaces", replaces)
	}
	n := fields("requests_per_unit", g.maybeOne("5", "0", "4294967295", "~", "0x10", "1_000"), "name", g.maybeOne("n"+g.name(), "~"), "unlimited", g.maybeOne("false", "no", "~"), "replaces", replaces,
		"on_failure", g.maybe(g.onFailure), "accuracy", g.maybe(g.accuracy), "charge", g.maybeOne("allowed", "always"))
	if g.IntN(4) == 0 {
		n.fields = append(n.fields, fields("window", g.one(append(durations, "1500ns", "400d")...)).fields...)
	} else {
		n.fields = append(n.fields, fields("unit", g.one("second", "minute", "hour", "day", "week", "month", "year", "MINUTE", "Hour", "dAy"), "unit_multiplier", g.maybeOne("1", "3")).fields...)
	}
	switch g.IntN(4) {
	case 0:
		n.fields = append(n.fields, fields("algorithm", g.one("token_bucket", "leaky_bucket"), "burst", g.maybeOne("20", "4294967295", "010")).fields...)
	case 1:
		n.fields = append(n.fields, fields("algorithm", g.one("fixed_window", "sliding_window_log", "sliding_window_counter", "leaky_queue")).fields...)
	}
	return n
}

// service returns a configuration of sluice serve.
func (g generator) service() *tree {
	tls := func() *tree {
		return fields("cert_file", g.file(), "key_file", g.file(), "client_ca_file", g.maybe(g.file))
	}
	clientTLS := func() *tree {
		return g.either(func() *tree { return fields("ca_file", g.file()) }, func() *tree { return fields("ca_file", g.maybe(g.file), "cert_file", g.file(), "key_file", g.file()) })
	}
	local := func() *tree {
		return g.one("127.0.0.1:8081", "localhost:0", "unix:///run/a.sock", "unix:run/a.sock", `"[::1]:80"`)
	}
	connections := func(more ...any) *tree {
		return fields(append(more, "tls", g.maybe(tls), "max_connections", g.maybeOne("1000", "1000000", "${SLUICE_TEST_NUMBER}"))...)
	}
	perAddress := func(n *tree) *tree {
		n.fields = append(n.fields, fields("max_connections_per_address", g.maybeOne("1", "5", "1", "5", "1", "5", "1", "5", "20000")).fields...)
		return n
	}
	gateway := g.IntN(2) == 0
	listeners := fields(
		"grpc", g.maybe(func() *tree {
			return perAddress(connections("address", g.maybe(local), "max_streams", g.maybeOne("1", "1000000"), "max_header_size", g.maybeOne("1KiB", "1MiB"),
				"max_message_size", g.maybeOne("1KiB", "16MiB"), "max_connection_age", g.maybe(g.interval), "max_connection_age_grace", g.maybe(g.duration), "reflection", g.maybe(g.flag)))
		}),
		"http", g.maybe(func() *tree { return perAddress(connections("address", g.maybe(local))) }),
		"resp", g.maybe(func() *tree { return perAddress(connections("address", g.one("off", "127.0.0.1:1"))) }),
		"admin", g.maybe(func() *tree { return connections("address", local()) }),
		"drain", g.maybe(func() *tree { return fields("delay", g.maybeOne("0s", "5s", "0ms"), "timeout", g.maybe(g.duration)) }),
	)
	if gateway {
		listeners.fields = append(listeners.fields, fields("gateway", perAddress(connections("address", g.one("127.0.0.1:8000", `":80"`),
			"max_header_size", g.maybeOne("4KiB", "1MiB"), "max_streams", g.maybeOne("1", "10000"),
			"certificates", g.maybe(func() *tree {
				return g.some(func() *tree { return fields("cert_file", g.file(), "key_file", g.file()) })
			}),
			"acme", g.maybe(func() *tree {
				return fields("domains", g.oneOrSome(func() *tree { return g.one("api.example.com", "a.example.com") }), "email", g.maybeOne("a@example.com"),
					"directory_url", g.maybeOne("https://acme.example.com/directory"), "ca_file", g.maybe(g.file), "cache_dir", g.maybe(g.file), "http_address", g.maybe(local))
			}),
		))).fields...)
	}
	n := fields("listeners", listeners,
		"store", g.maybe(func() *tree { return g.store(clientTLS) }),
		"rules", g.maybe(func() *tree {
			return fields("paths", g.maybe(func() *tree { return g.oneOrSome(g.file) }), "merge_domains", g.maybe(g.flag), "charge_denied", g.maybe(g.flag))
		}),
		"rls", g.maybe(func() *tree {
			return fields("max_descriptors", g.maybeOne("1", "100000"), "accept_limit_overrides", g.maybe(g.flag), "accept_negative_hits", g.maybe(g.flag), "shadow_mode", g.maybe(g.flag), "quota_mode", g.maybe(g.flag),
				"dynamic_metadata", g.maybe(g.flag), "headers", g.maybe(func() *tree {
					return fields("enabled", g.maybe(g.flag), "limit", g.maybe(g.text), "remaining", g.maybe(g.text), "reset", g.maybe(g.text))
				}))
		}),
		"resp", g.maybe(func() *tree { return fields("password_file", g.maybe(g.file), "on_failure", g.maybe(g.onFailure)) }),
		"forward_auth", g.maybe(func() *tree { return fields("max_delay", g.maybe(g.duration)) }),
		"check_api", g.maybe(func() *tree {
			return fields("reservation_secret_file", g.maybe(g.file), "refund_token_file", g.maybe(g.file))
		}),
		"metrics", g.maybe(func() *tree {
			return fields("enabled", g.maybeOne("true"), "http_listener", g.maybe(g.flag), "allow_unauthenticated", g.maybe(g.flag), "otlp", g.maybe(func() *tree { return g.collector(clientTLS, "interval", g.maybe(g.interval)) }))
		}),
		"admin", g.maybe(func() *tree {
			return fields("token_file", g.maybe(g.file), "allowed_hosts", g.maybe(func() *tree { return g.oneOrSome(g.text) }))
		}),
		"logging", g.maybe(func() *tree {
			return fields("level", g.maybeOne("debug", "info", "warn", "error"), "format", g.maybeOne("text", "json"), "denials", g.maybeOne("off", "sampled"),
				"denials_per_second", g.maybeOne("1", "1000"), "keys", g.maybeOne("masked"), "secret_file", g.maybe(g.file))
		}),
		"tracing", g.maybe(func() *tree {
			return g.collector(clientTLS, "sample_ratio", g.maybeOne("0", "1", "0.01", ".5", "1e-3", "1.0", "${SLUICE_TEST_FRACTION}"))
		}),
		"queue", g.maybe(func() *tree { return g.queue(clientTLS) }),
	)
	if client := listeners.field("grpc"); client != nil && client.field("tls") != nil && client.field("tls").field("client_ca_file") != nil {
		n.set("rls", "client_domains", fields("a.example.com", g.oneOrSome(func() *tree { return g.one("messaging", `"*"`, "5") }), `"*"`, g.maybe(func() *tree { return g.one("b") })))
	}
	if gateway {
		g.gateway(n)
	}
	return n
}

// field returns the value of a key, or nil.
func (n *tree) field(key string) *tree {
	for _, f := range n.fields {
		if f.key == key {
			return f.value
		}
	}
	return nil
}

// set adds a key to a section, and adds the section if it is missing.
func (n *tree) set(section, key string, value *tree) {
	at := n.field(section)
	if at == nil {
		at = &tree{kind: mapping}
		n.fields = append(n.fields, treeField{section, at})
	}
	if value != nil {
		at.fields = append(at.fields, treeField{key, value})
	}
}

func (g generator) file() *tree {
	return g.one("/etc/a.pem", "b.yaml", "5", "true", "${SLUICE_TEST_WORD}.pem", `"a b"`)
}

func (g generator) text() *tree {
	return g.one("a", "RateLimit-Limit", "5", "true", "x${SLUICE_TEST_WORD}", "$$a")
}

func (g generator) store(tls func() *tree) *tree {
	more := []any{"key_prefix", g.maybeOne(`"a:"`, "5"), "timeout", g.maybe(g.duration), "instances", g.maybeOne("0", "1000000"), "required", g.maybe(g.flag)}
	switch g.IntN(4) {
	case 0:
		return fields(append(more, "kind", g.one("redis"), "url", g.one("redis://a:6379", "redis://u:${SLUICE_TEST_WORD}@h/0"), "password_file", g.maybe(g.file))...)
	case 1:
		return fields(append(more, "kind", g.one("redis"), "url", g.one("rediss://a:6379"), "tls", g.maybe(tls))...)
	case 2:
		return fields(append(more, "kind", g.one("memcached"), "addresses", g.maybe(func() *tree { return g.oneOrSome(func() *tree { return g.one("127.0.0.1:11211", "a:1") }) }), "tls", g.maybe(tls))...)
	}
	return fields(append(more, "kind", g.maybeOne("memory"), "max_memory", g.maybeOne("1MiB", "2GiB", "2000000B", "1KiB"), "snapshot_file", g.maybe(g.file))...)
}

func (g generator) collector(tls func() *tree, more ...any) *tree {
	if g.IntN(2) == 0 {
		return fields(append(more, "endpoint", g.one("https://localhost:4317"), "tls", g.maybe(tls))...)
	}
	return fields(append(more, "endpoint", g.one("http://localhost:4317"), "headers_file", g.maybe(g.file))...)
}

func (g generator) queue(tls func() *tree) *tree {
	n := fields("stream_prefix", g.maybe(g.text), "encryption_key_file", g.maybe(g.file), "max_total_size", g.maybeOne("1MiB", "512GiB"), "max_items", g.maybeOne("5", "10000000"), "max_total_size_per_key", g.maybeOne("4KiB", "1MiB"),
		"max_items_per_key", g.maybeOne("1", "5"), "max_item_size", g.maybeOne("4KiB", "1MiB"), "max_results_size", g.maybeOne("1MiB"), "dead_letter_ttl", g.maybeOne("0s", "168h", "0ms", "7d"),
		"workers", g.maybeOne("1", "10000"), "delivery_timeout", g.maybe(g.duration))
	where := fields("directory", g.file())
	if g.IntN(2) == 0 {
		where = fields("url", g.one("nats://a:4222", `"tls://a:1, nats://b:2"`), "credentials_file", g.maybe(g.file), "tls", g.maybe(tls))
	}
	n.fields = append(n.fields, where.fields...)
	return n
}

// gateway adds a gateway with routes, and the authentication that they need.
func (g generator) gateway(n *tree) {
	n.set("gateway", "upstreams", fields("api", g.upstream(), "b.2", g.maybe(g.upstream)))
	prefix := func() *tree { return g.one("10.0.0.0/8", "192.0.2.1", "2001:db8::/32") }
	for _, f := range fields("allowed_ips", g.maybe(func() *tree { return g.oneOrSome(prefix) }), "denied_ips", g.maybe(func() *tree { return g.oneOrSome(prefix) }),
		"max_requests", g.maybeOne("5", "1000000"), "max_requests_per_address", g.maybeOne("1", "5"), "max_buffered_size", g.maybeOne("128MiB", "1GiB"),
		"access_log", g.maybe(func() *tree {
			return fields("file", g.one(`"-"`, "access.log"), "format", g.maybeOne("json", "combined"), "include_query", g.maybe(g.flag))
		})).fields {
		n.set("gateway", f.key, f.value)
	}
	var methods []string
	authentication := fields("identity_headers", g.maybe(func() *tree {
		return fields("X-User", g.one("user", "plan", "claim:team"), "X-Plan", g.maybeOne("plan"))
	}),
		"failed_attempts", g.maybeOne("10/min", "off", "5 concurrent", "1k / Hour"))
	for _, f := range fields(
		"api_keys", g.maybe(func() *tree {
			return fields("files", g.oneOrSome(g.file), "header", g.maybe(g.text), "bearer", g.maybe(g.flag), "forward_credentials", g.maybe(g.flag))
		}),
		"basic", g.maybe(func() *tree {
			return fields("files", g.oneOrSome(g.file), "realm", g.maybe(g.text), "forward_credentials", g.maybe(g.flag))
		}),
		"jwt", g.maybe(g.jwt),
	).fields {
		methods = append(methods, f.key)
		authentication.fields = append(authentication.fields, f)
	}
	if len(authentication.fields) > 0 {
		n.fields = append(n.fields, treeField{"authentication", authentication})
	}
	routes := &tree{kind: list}
	for i, path := range []string{"/v1/**", "/users/{id}", "/c/*/d"}[:1+g.IntN(2)] {
		r := fields("path", g.one(path), "upstream", g.one("api"), "host", g.maybeOne("api.example.com", `"*.example.com"`), "add_prefix", g.maybeOne("/v1", "/a/b"), "host_header", g.maybeOne("client", "upstream"),
			"max_body_size", g.maybeOne("off", "1B", "10MiB"), "timeout", g.maybe(g.duration), "cors", g.maybe(g.cors))
		if i == 0 {
			r.fields = append(r.fields, fields("strip_prefix", g.maybeOne("/v1")).fields...)
		}
		if len(methods) > 0 && g.IntN(2) == 0 {
			r.fields = append(r.fields, fields("authentication", g.oneOrSome(func() *tree { return g.one(methods...) }), "allow_anonymous", g.maybe(g.flag)).fields...)
		}
		routes.items = append(routes.items, r)
	}
	n.set("gateway", "routes", routes)
}

func (g generator) upstream() *tree {
	server, hash := "http://127.0.0.1:9000|h2c://a:1|http://a/", g.IntN(3) == 0
	n := fields("health_check", g.maybe(func() *tree {
		return fields("path", g.one("/healthz", "/a?b=c"), "interval", g.maybe(g.interval), "timeout", g.maybe(g.duration), "healthy_threshold", g.maybeOne("1", "100"), "unhealthy_threshold", g.maybeOne("1", "3"))
	}), "outlier_detection", g.maybe(func() *tree {
		return fields("consecutive_failures", g.maybeOne("1", "1000000"), "ejection_time", g.maybe(g.duration))
	}),
		"timeouts", g.maybe(func() *tree {
			return fields("connect", g.maybe(g.duration), "response_header", g.maybe(g.duration), "idle", g.maybe(g.duration))
		}),
		"retries", g.maybeOne("0", "10"))
	if g.IntN(2) == 0 {
		server = "https://a.example.com|https://b:8443"
		n.fields = append(n.fields, fields("tls", g.maybe(func() *tree { return fields("ca_file", g.file(), "server_name", g.maybe(g.text)) })).fields...)
		if n.field("tls") == nil {
			n.fields = append(n.fields, fields("tls", g.maybe(func() *tree { return fields("cert_file", g.file(), "key_file", g.file()) })).fields...)
		}
	}
	n.fields = append(n.fields, fields("servers", g.oneOrSome(func() *tree { return g.one(strings.Split(server, "|")...) })).fields...)
	if hash {
		n.fields = append(n.fields, fields("load_balancing", g.one("hash"), "hash_by", g.maybeOne("ip", "path", "header:X-A", "cookie:c")).fields...)
	} else {
		n.fields = append(n.fields, fields("load_balancing", g.maybeOne("round_robin", "least_request")).fields...)
	}
	return n
}

func (g generator) cors() *tree {
	return fields("origins", g.oneOrSome(func() *tree { return g.one("https://app.example.com", "https://*.example.com") }),
		"methods", g.maybe(func() *tree { return g.oneOrSome(func() *tree { return g.one("GET", "PATCH") }) }), "headers", g.maybe(func() *tree { return g.oneOrSome(func() *tree { return g.one("X-A", `"*"`) }) }),
		"exposed_headers", g.maybe(func() *tree { return g.oneOrSome(func() *tree { return g.one("X-A", "X-B") }) }), "credentials", g.maybe(g.flag), "max_age", g.maybeOne("10m", "0s", "0ms"))
}

func (g generator) jwt() *tree {
	more := []any{
		"issuer", g.maybe(g.text), "audience", g.maybe(func() *tree { return g.oneOrSome(g.text) }), "leeway", g.maybeOne("0s", "30s", "0ms"), "user_claim", g.maybe(g.text), "plan_claim", g.maybe(g.text),
		"forward_credentials", g.maybe(g.flag),
	}
	switch g.IntN(3) {
	case 0:
		return fields(append(more, "algorithms", g.oneOrSome(func() *tree { return g.one("HS256", "HS384") }), "secret_file", g.file())...)
	case 1:
		return fields(append(more, "algorithms", g.one("ES256", "EdDSA"), "jwks_file", g.file())...)
	}
	return fields(append(more, "algorithms", g.one("RS256", "PS512"), "jwks_url", g.one("https://a/jwks.json", "http://127.0.0.1:1/j"), "jwks_ca_file", g.maybe(g.file), "jwks_refresh", g.maybe(g.interval), "allow_insecure_jwks_url", g.maybe(g.flag))...)
}
