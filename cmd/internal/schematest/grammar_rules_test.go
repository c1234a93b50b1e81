package schematest

import "slices"

// The grammar of rule files, as in docs/rules.md and the pages that it lists.

var durations = []string{"500ms", "1s", "90s", "10m", "1h30m", "7d", "1w", "1.5h", "1d12h"}

// rules returns a rule file.
func (g generator) rules() *tree {
	n := fields(
		"version", g.maybeOne("1"),
		"attributes", fields(
			"user", g.user(), "plan", fields("header", g.one("X-Plan"), "default", g.one("free", "5", "true")),
			"pages", fields("query", g.one("pages", "7"), "default", g.one("1", "10")),
			g.one("team", "t.2", "_x-1", "basic").text, g.maybe(func() *tree { return g.attribute("ip", "method", "host") }),
		),
		"lists", fields("office", g.some(func() *tree { return g.one("192.0.2.0/24", "2001:db8::/32", "10.1.2.3") }),
			"paths", g.some(func() *tree { return g.one("/a", "/b/**") }), "words", g.some(func() *tree { return g.one("a", "5", "true", `"a b"`, "1.5") }), "other", g.maybe(func() *tree { return &tree{kind: list} })),
		"client_ip", g.maybe(g.clientIP),
		"paths", g.maybe(func() *tree { return fields("ignore_case", g.maybeOne("true", "false")) }),
		"unmatched", g.maybeOne("allow", "deny"),
		"defaults", g.maybe(func() *tree {
			return fields("algorithm", g.maybeOne("token_bucket", "leaky_bucket", "fixed_window"), "on_failure", g.maybe(g.onFailure),
				"accuracy", g.maybe(g.accuracy), "shadow", g.maybe(g.flag), "on_limit", g.maybeOne("deny", "queue"),
				"charge", g.maybe(g.charge), "on_missing", g.maybe(g.onMissing))
		}),
		"allow", g.maybe(func() *tree { return g.some(g.match) }),
		"deny", g.maybe(func() *tree { return g.some(g.match) }),
		"rules", g.ruleList(),
		"priorities", g.maybe(func() *tree {
			return g.some(func() *tree {
				return fields("match", g.match(), "priority", g.one("low", "normal", "high", "critical"))
			})
		}),
		"load_shedding", g.maybe(func() *tree {
			return g.some(func() *tree {
				return fields("name", g.one("5", "true", g.name(), g.name(), g.name()), "match", g.maybe(g.match), "shadow", g.maybe(g.flag),
					"concurrency", g.maybe(func() *tree { return fields("min", g.maybeOne("1", "10"), "max", g.maybeOne("500", "1000000")) }))
			})
		}),
	)
	used := make(map[string]int)
	n.walk(func(n *tree) {
		used[n.text]++
		for _, f := range n.fields {
			used[f.key]++
		}
	})
	g.prune(n.field("attributes"), used)
	g.prune(n.field("lists"), used)
	return n
}

// prune removes most unused declarations, so that documents are small.
func (g generator) prune(section *tree, used map[string]int) {
	section.fields = slices.DeleteFunc(section.fields, func(f treeField) bool { return used[f.key] == 1 && g.IntN(8) > 0 })
}

func (g generator) flag() *tree {
	if g.IntN(100) == 0 {
		return g.one("True", "FALSE")
	}
	return g.one("true", "false")
}
func (g generator) onFailure() *tree { return g.one("local", "open", "closed") }
func (g generator) accuracy() *tree  { return g.one("exact", "exact", "lease", "eventual") }
func (g generator) onMissing() *tree { return g.one("share", "skip", "reject") }

// duration returns a duration that is valid nearly everywhere; some are too long.
func (g generator) duration() *tree {
	if g.IntN(100) == 0 {
		return g.one("99999999w", "400d")
	}
	return g.one(durations...)
}

// interval returns the duration of the repetitions of a loop.
func (g generator) interval() *tree { return g.one(durations[1:]...) }

func (g generator) name() string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789-_."
	b := []byte{'r'}
	for range 5 {
		b = append(b, letters[g.IntN(len(letters))])
	}
	return string(b)
}

// user returns the attribute that matches use; few are addresses.
func (g generator) user() *tree {
	if g.IntN(50) == 0 {
		return g.one("ip")
	}
	return g.attribute()
}

func (g generator) attribute(refs ...string) *tree {
	source := func() *tree {
		switch g.IntN(8) {
		case 0:
			return fields("header", g.one("X-User", "X-1", "5"))
		case 1:
			return fields("query", g.one("q", "7", "true"))
		case 2:
			return fields("cookie", g.one("session", "7"))
		case 3:
			return fields("claim", g.one("sub", "7"))
		case 4:
			return fields("jwt", g.one("sub", "true"))
		case 5:
			return fields("api_key", g.one("X-Api-Key", "5"))
		case 6:
			return fields("attr", g.one("region", "7"))
		}
		return fields("basic_user", g.one("true"))
	}
	options := func(n *tree) *tree {
		n.fields = append(n.fields, fields("default", g.maybeOne("free", "5", "true", "1.5"), "secret", g.maybe(g.flag), "lowercase", g.maybe(g.flag)).fields...)
		return n
	}
	short := func() *tree {
		return g.one(append(refs, "basic_user", "header:X-User", "query:q", "cookie:c", "claim:sub", "jwt:sub", "attr:a", "api_key:X-Key")...)
	}
	return g.either(short,
		func() *tree { return options(source()) },
		func() *tree {
			n := g.some(func() *tree { return g.either(source, func() *tree { return g.one("header:X-User", "jwt:sub") }) })
			if g.IntN(2) == 0 {
				n.items = append(n.items, options(source()))
			}
			if g.IntN(4) == 0 {
				n.items = append(n.items, fields("default", g.one("a", "5"), "secret", g.maybe(g.flag)))
			}
			return n
		})
}

func (g generator) clientIP() *tree {
	proxy := func() *tree { return g.one("10.0.0.0/8", "192.0.2.1", "2001:db8::/32", "::1", `"::ffff:192.0.2.1"`) }
	return fields("trusted_proxies", g.oneOrSome(proxy), "header", g.maybeOne("X-Forwarded-For", "Forwarded", "X-Real-IP"),
		"hops", g.maybeOne("1", "2", "64"), "ipv6_prefix", g.maybeOne("32", "56", "64", "128"))
}

func (g generator) match() *tree {
	word := func(words ...string) func() *tree { return func() *tree { return g.one(words...) } }
	value := word("a", "5", "true", "1.5", `""`, `"a b"`, "X")
	named := func(names ...string) *tree {
		return g.maybe(func() *tree { return fields(g.one(names...).text, g.condition("words", value)) })
	}
	n := fields(
		"method", g.maybe(func() *tree { return g.condition("words", word("GET", "POST", "get", "DELETE")) }),
		"path", g.maybe(func() *tree {
			return g.condition("paths", word("/posts", "/users/{id}", "/files/**", "/a/*.png", "/", "/a/*/b"))
		}),
		"host", g.maybe(func() *tree { return g.condition("words", word("api.example.com", `"*.example.com"`, "localhost")) }),
		"ip", g.maybe(func() *tree { return g.condition("office", word("192.0.2.1", "10.0.0.0/8", "2001:db8::/32")) }),
		"basic_user", g.maybe(func() *tree { return g.condition("words", value) }),
		"header", named("X-A", "X-Plan", `"5"`), "query", named("q", `"7"`, `"a b"`), "cookie", named("c"), "claim", named("sub"),
		"jwt", named("role"), "attr", named("region"), "user", g.maybe(func() *tree { return g.condition("words", word("ada", "5", "true")) }),
	)
	if len(n.fields) == 0 {
		return fields("path", g.one("/posts", "/a/**"))
	}
	return n
}

// condition returns a condition on a value, in one of its forms.
func (g generator) condition(list string, value func() *tree) *tree {
	texts := func() *tree { return g.oneOrSome(func() *tree { return g.one("a", "5", "true", "/a", "1.5") }) }
	var part func() *tree
	part = func() *tree {
		switch g.IntN(8) {
		case 0:
			return fields("in", g.some(func() *tree { return g.either(value, value, part) }))
		case 1:
			return fields("prefix", texts())
		case 2:
			return fields("suffix", texts())
		case 3:
			return fields("regex", g.oneOrSome(func() *tree { return g.one("^a", "5", `"[0-9]+$"`, "true") }))
		case 4:
			return fields("list", g.one(list))
		}
		return value()
	}
	switch g.IntN(6) {
	case 0:
		return value()
	case 1:
		return g.some(part)
	case 2:
		return fields("not", g.either(value, part, func() *tree { return g.some(part) }, func() *tree { return fields("present", g.flag()) }))
	case 3:
		return fields("present", g.flag())
	}
	return part()
}

func (g generator) ruleList() *tree {
	n := &tree{kind: list}
	for range g.IntN(4) % 3 {
		n.items = append(n.items, g.rule())
	}
	return n
}

func (g generator) rule() *tree {
	key := "limit"
	if g.IntN(4) == 0 {
		key = "limits"
	}
	ref := func() *tree {
		return g.one("ip", "user", "plan", "header:X-A", "query:q", "cookie:c", "jwt:sub", "claim:a.b", "attr:x", "method", "host", "path")
	}
	per := g.maybe(func() *tree {
		return g.either(ref, func() *tree { return &tree{kind: list, items: []*tree{g.one("user", "plan"), g.one("ip", "method")}} })
	})
	n := fields(
		"name", g.one(g.name(), g.name(), g.name(), "5", "true", "1.5"),
		"description", g.maybeOne("Posting", "5", "true", `"a b"`),
		"hidden", g.maybe(g.flag), "enabled", g.maybe(g.flag),
		"match", g.maybe(g.match),
		"except", g.maybe(func() *tree { return g.oneOrSome(g.match) }),
		"per", per,
		key, g.oneOrSome(g.limit),
		"tiers", g.maybe(func() *tree {
			return fields("by", g.one("plan", "user", "method", "header:X-Plan"), "GET", g.chosen(), "pro", g.chosen(), `"5"`, g.maybe(func() *tree { return g.chosen() }))
		}),
		"algorithm", g.maybeOne("token_bucket", "leaky_bucket", "fixed_window", "sliding_window_log", "sliding_window_counter"),
		"cost", g.maybe(g.cost),
		"shadow", g.maybe(g.flag), "enforce", g.maybeOne("25%", "100%", "0.5%", "100.00%", "99.99%", "007%"),
		"charge", g.maybe(g.charge),
		"denial", g.maybe(g.denial), "actual_cost", g.maybe(g.actualCost),
		"on_failure", g.maybe(g.onFailure), "accuracy", g.maybe(g.accuracy), "on_missing", g.maybe(g.onMissing),
	)
	switch {
	case per == nil:
	case per.kind == list && g.IntN(2) == 0:
		n.fields = append(n.fields, fields("overrides", g.some(func() *tree {
			return fields("key", &tree{kind: list, items: []*tree{g.one("ada", "5", "true"), g.one("192.0.2.1", "2001:db8::1")}}, key, g.chosen())
		})).fields...)
	case per.kind == scalar && g.IntN(2) == 0:
		n.fields = append(n.fields, fields("overrides", g.either(
			func() *tree {
				return fields("192.0.2.1", g.chosen(), `"::1"`, g.maybe(func() *tree { return g.chosen() }))
			},
			func() *tree {
				return &tree{kind: list, items: []*tree{fields("key", g.one("192.0.2.7"), g.one("limit", "limits").text, g.chosen())}}
			},
		)).fields...)
	}
	switch g.IntN(6) {
	case 0:
		if g.IntN(30) == 0 {
			return fields("name", g.one("r"), "limit", g.rate(), "max_delay", g.one(durations...))
		}
		n.fields = append(n.fields, fields("on_limit", g.one("delay"), "max_delay", g.one(durations...)).fields...)
	case 1:
		n.fields = append(n.fields, fields("on_limit", g.one("queue"), "queue", fields(
			"order", g.maybeOne("none", "key"), "keep_headers", g.maybe(func() *tree { return g.oneOrSome(func() *tree { return g.one("Authorization", "Cookie", "5") }) }),
			"max_attempts", g.maybeOne("1", "5", "1000"), "expires_after", g.maybeOne("1s", "1h", "7d"), "result_ttl", g.maybeOne("10m", "1d12h"),
		)).fields...)
	case 2:
		n.fields = append(n.fields, fields("on_limit", g.one("deny", "queue")).fields...)
	}
	return n
}

func (g generator) cost() *tree {
	number := func() *tree { return g.one("1", "5", "1125899906842624") }
	return g.either(number, func() *tree {
		return fields(g.one("header", "query", "cookie", "claim", "jwt", "attr").text, g.one("X-Cost", "cost", "5"), "default", g.maybe(number), "max", g.maybe(number))
	}, func() *tree {
		return fields("attribute", g.one("pages", "header:X-Cost", "jwt:cost"), "default", g.maybe(number), "max", g.maybe(number))
	})
}

func (g generator) charge() *tree {
	return g.either(func() *tree { return g.one("allowed", "always") }, func() *tree {
		return fields("status", g.oneOrSome(func() *tree { return g.one("401", "500-599", `"403"`, "500 - 599", "100", "599", "599-500") }))
	})
}

func (g generator) denial() *tree {
	n := fields("status", g.maybeOne("400", "403", "429", "599"))
	switch g.IntN(3) {
	case 0:
		n.fields = append(n.fields, fields("message", g.one("wait", "5", "true", `"{nothing}"`, `"{rule}: {limit}, {retry_after}"`)).fields...)
	case 1:
		n.fields = append(n.fields, fields("body", g.one("wait", "5", `"a\nb"`, `"{limit}"`), "content_type", g.maybeOne("text/", "application/json", "text/html; charset=utf-8", "text")).fields...)
	}
	return n
}

func (g generator) actualCost() *tree {
	return g.either(func() *tree {
		return fields("header", g.one("X-Tokens-Used", "X-1"), "strip_header", g.maybe(g.flag), "default", g.maybeOne("0", "5"))
	}, func() *tree {
		return fields("json", g.one("usage.total_tokens", "a", "5", "a.b.c"), "default", g.maybeOne("0", "5"), "strip_header", g.maybeOne("false"))
	})
}

func (g generator) rate() *tree {
	return g.one("5/s", "100/min", "300/3h", "5/week", "10k/min", "1/500ms", "2M/day", "10_000/hour", "5/2weeks", "7/month", "9/y", `"5 / 3 h"`, "5/10minutes", "3/MIN")
}

func (g generator) count() *tree {
	return g.one("5", "300", "10k", "2M", "10_000", `"5"`, `"9999999999999999M"`)
}

// limit returns a limit in one of its forms.
func (g generator) limit() *tree {
	n := fields("rate", g.rate())
	if g.IntN(4) == 0 {
		n = fields("rate", g.count(), "window", g.duration())
	}
	add := func(more *tree) { n.fields = append(n.fields, more.fields...) }
	if g.IntN(6) == 0 {
		add(fields("name", g.one("burst", "5", "true", g.name())))
	}
	switch g.IntN(10) {
	case 0:
		return fields("concurrent", g.one("5", "1", "10_000", "1k", `"7"`, "20k"), "permit_ttl", g.maybeOne("48h", "30s", "1ms", "24h", "1d"), "name", g.maybeOne("c", "5"))
	case 1:
		add(fields("burst", g.count(), "algorithm", g.one("token_bucket", "leaky_bucket", "leaky_queue")))
	case 2:
		add(fields("algorithm", g.one("token_bucket"), "burst", g.one("300", "10k"), "initial", g.one("0", "1", "0k", `"5"`, "_7", "300")))
	case 9:
		add(fields("algorithm", g.one("token_bucket"), "refill", g.one("continuous", "interval"), "burst", g.maybe(g.count)))
	case 3:
		add(fields("algorithm", g.one("token_bucket"), "refill", g.one("interval"), "align", g.one("epoch", "first_request")))
	case 4:
		add(fields("algorithm", g.one("fixed_window"), "align", g.maybeOne("epoch", "first_request"), "soft_excess", g.one("5", "20%", "12.5%", "1000%", "10k"), "soft_period", g.one("100ms", "200ms", "500ms")))
	case 5:
		return fields("rate", g.one("5/h", "5/day", "5/week", "5/month", "7/Years", `"5/ d"`), "align", g.one("calendar"), "zone", g.maybeOne("UTC", "Asia/Seoul", "Europe/Paris"))
	case 6:
		add(fields("algorithm", g.one("sliding_window_counter"), "rounding", g.maybeOne("down", "nearest"), "sub_windows", g.maybeOne("1", "6", "60")))
	case 7:
		add(fields("algorithm", g.one("sliding_window_log", "fixed_window", "sliding_window_counter")))
	default:
		return g.rate()
	}
	return n
}

// chosen returns the limit of a tier or an override.
func (g generator) chosen() *tree {
	return g.either(func() *tree { return g.oneOrSome(g.limit) }, func() *tree { return g.one("unlimited", "deny") }, g.rate)
}
