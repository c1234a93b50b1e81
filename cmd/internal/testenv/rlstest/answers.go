package rlstest

// quotas are three rules, two of which are in quota mode.
const quotas = `
  - {key: q, quota_mode: true, limit: 1}
  - {key: p, quota_mode: true, limit: 1}
  - {key: r, limit: 10}
  - {key: free, rate_limit: {unlimited: true}}
`

// answers are cases about the fields of a response, and how its overall code is determined.
var answers = []Case{
	{Name: "units", Rules: `
  - {key: s, rate_limit: {unit: second, requests_per_unit: 7}}
  - {key: m, rate_limit: {unit: MINUTE, requests_per_unit: 7}}
  - {key: h, rate_limit: {unit: Hour, requests_per_unit: 7}}
  - {key: d, rate_limit: {unit: day, requests_per_unit: 7}}
  - {key: w, rate_limit: {unit: week, requests_per_unit: 7}}
  - {key: mo, rate_limit: {unit: month, requests_per_unit: 7}}
  - {key: "y", rate_limit: {unit: year, requests_per_unit: 4294967295, name: yearly}}
`, Steps: []Step{
		{"s=1", "OK: OK 7/SECOND left 6"},
		{"m=1", "OK: OK 7/MINUTE left 6"},
		{"h=1", "OK: OK 7/HOUR left 6"},
		{"d=1", "OK: OK 7/DAY left 6"},
		{"w=1", "OK: OK 7/WEEK left 6"},
		{"mo=1", "OK: OK 7/MONTH left 6"},
		{"y=1", "OK: OK 4294967295/YEAR yearly left 4294967294"},
	}},
	{Name: "other windows", Native: true, Rules: `
  - {key: a, rate_limit: {window: 12h, requests_per_unit: 7}}
  - {key: b, rate_limit: {window: 90s, requests_per_unit: 7}}
  - {key: c, rate_limit: {unit: week, unit_multiplier: 2, requests_per_unit: 7}}
  - {key: d, rate_limit: {window: 250ms, requests_per_unit: 7}}
  - {key: e, rate_limit: {unit: hour, requests_per_unit: 7, burst: 20, algorithm: token_bucket}}
`, Steps: []Step{
		{"a=1", "OK: OK 7/12xHOUR left 6"},
		{"b=1", "OK: OK 7/90xSECOND left 6"},
		{"c=1", "OK: OK 7/2xWEEK left 6"},
		{"d=1", "OK: OK 7/UNKNOWN left 6 reset in 1s"},
		{"e=1", "OK: OK 7/HOUR left 19"},
	}},
	{Name: "over", Rules: "  - {key: a, limit: 1}\n  - {key: b, limit: 10}\n", Steps: []Step{
		{"a=1", last},
		{"a=1", over},
		{"a=1", over},
		{"a=2", last},
	}},
	{Name: "shadow mode of a rule", Rules: "  - {key: a, shadow_mode: true, limit: 1}\n  - {key: b, limit: 1}\n", Steps: []Step{
		{"a=1", last},
		{"a=1", last},
		{"a=1 | b=1", "OK: OK 1/YEAR left 0 | OK 1/YEAR left 0"},
		{"a=1 | b=1", "OVER_LIMIT: OK 1/YEAR left 0 | OVER_LIMIT 1/YEAR left 0"},
	}},
	{Name: "shadow mode of all", Settings: Settings{Shadow: true}, Rules: "  - {key: a, limit: 1}\n  - {key: b, limit: 10}\n", Steps: []Step{
		{"a=1 | b=1", "OK: OK 1/YEAR left 0 | OK 10/YEAR left 9"},
		{"a=1 | b=1", "OK: OVER_LIMIT 1/YEAR left 0 | OK 10/YEAR left 8"},
	}},
	{Name: "quota mode", Rules: quotas, Steps: []Step{
		{"q=1", last},
		{"q=1", over},
		{"q=1 | p=1", "OK: OVER_LIMIT 1/YEAR left 0 | OK 1/YEAR left 0"},
		{"q=1 | p=1", "OVER_LIMIT: OVER_LIMIT 1/YEAR left 0 | OVER_LIMIT 1/YEAR left 0"},
		{"q=1 | p=2 | r=1", "OK: OVER_LIMIT 1/YEAR left 0 | OK 1/YEAR left 0 | OK 10/YEAR left 9"},
		{"q=1 | free=1", "OVER_LIMIT: OVER_LIMIT 1/YEAR left 0 | OK left 4294967295"},
		{"q=1 | none=1", "OVER_LIMIT: OVER_LIMIT 1/YEAR left 0 | OK"},
	}},
	{Name: "quota mode denies and costs nothing", Native: true, Rules: quotas, Steps: []Step{
		{"q=1 | p=1 | r=1", "OK: OK 1/YEAR left 0 | OK 1/YEAR left 0 | OK 10/YEAR left 9"},
		{"q=1 | p=1 | r=1", "OVER_LIMIT: OVER_LIMIT 1/YEAR left 0 | OVER_LIMIT 1/YEAR left 0 | OK 10/YEAR left 9"},
		{"q=3", last},
		{"q=3 | r=1", "OVER_LIMIT: OVER_LIMIT 1/YEAR left 0 | OK 10/YEAR left 9"},
		{"r=1 hits:11 | p=2 | q=2", "OVER_LIMIT: OVER_LIMIT 10/YEAR left 0 | OK 1/YEAR left 1 | OK 1/YEAR left 1"},
		{"r=1 hits:11 | p=1 | q=1", "OVER_LIMIT: OVER_LIMIT 10/YEAR left 0 | OVER_LIMIT 1/YEAR left 0 | OVER_LIMIT 1/YEAR left 0"},
		{"r=1 hits:9", "OK: OK 10/YEAR left 0"},
	}},
	{Name: "a query of a quota does not affect other rules", Native: true, Rules: quotas, Steps: []Step{
		{"q=1", last},
		{"q=1 hits:0 | p=1 | r=1", "OK: OVER_LIMIT 1/YEAR left 0 | OK 1/YEAR left 0 | OK 10/YEAR left 9"},
		{"q=1 hits:0 | p=1 | r=1", "OVER_LIMIT: OVER_LIMIT 1/YEAR left 0 | OVER_LIMIT 1/YEAR left 0 | OK 10/YEAR left 9"},
	}},
	{Name: "a query in global shadow mode", Native: true, Settings: Settings{Shadow: true}, Rules: "  - {key: a, limit: 1}\n", Steps: []Step{
		{"a=1", last},
		{"a=1 hits:0 | a=2", "OK: OVER_LIMIT 1/YEAR left 0 | OK 1/YEAR left 0"},
	}},
	{Name: "quota mode of several limits", Native: true, Rules: `
  - {key: q, quota_mode: true, rate_limit: [{unit: year, requests_per_unit: 10}, {unit: month, requests_per_unit: 1}]}
  - {key: p, quota_mode: true, limit: 10}
`, Steps: []Step{
		{"q=1 | p=1", "OK: OK 1/MONTH left 0 | OK 10/YEAR left 9"},
		{"q=1 | p=1", "OK: OVER_LIMIT 1/MONTH left 0 | OK 10/YEAR left 8"},
		{"q=1 | p=1 hits:9", "OVER_LIMIT: OVER_LIMIT 1/MONTH left 0 | OVER_LIMIT 10/YEAR left 0"},
	}},
	{Name: "quota mode of all", Settings: Settings{Quota: true}, Rules: `
  - {key: a, limit: 1}
  - {key: b, limit: 1}
  - {key: free, rate_limit: {unlimited: true}}
`, Steps: []Step{
		{"a=1", last},
		{"a=1", over},
		{"a=1 | b=1", "OK: OVER_LIMIT 1/YEAR left 0 | OK 1/YEAR left 0"},
		{"a=1 | b=1", "OVER_LIMIT: OVER_LIMIT 1/YEAR left 0 | OVER_LIMIT 1/YEAR left 0"},
		{"a=1 | none=1", "OK: OVER_LIMIT 1/YEAR left 0 | OK"},
		{"a=1 | free=1", "OVER_LIMIT: OVER_LIMIT 1/YEAR left 0 | OK left 4294967295"},
	}},
	{Name: "headers", Settings: Settings{Headers: true}, Rules: `
  - {key: a, limit: 10}
  - {key: b, limit: 5}
  - {key: c, limit: 1}
  - {key: d, limit: 0}
  - {key: q, quota_mode: true, limit: 1}
  - {key: free, rate_limit: {unlimited: true}}
`, Steps: []Step{
		{"a=1", "OK: OK 10/YEAR left 9 # RateLimit-Limit=10, RateLimit-Remaining=9, RateLimit-Reset=soon"},
		{"a=1 | b=1", "OK: OK 10/YEAR left 8 | OK 5/YEAR left 4 # RateLimit-Limit=5, RateLimit-Remaining=4, RateLimit-Reset=soon"},
		{"free=1", "OK: OK left 4294967295"},
		{"none=1", none},
		{"c=1", "OK: OK 1/YEAR left 0 # RateLimit-Limit=1, RateLimit-Remaining=0, RateLimit-Reset=soon"},
		{"c=1 | d=1", "OVER_LIMIT: OVER_LIMIT 1/YEAR left 0 | OVER_LIMIT 0/YEAR left 0 # RateLimit-Limit=0, RateLimit-Remaining=0, RateLimit-Reset=soon"},
		{"q=1", "OK: OK 1/YEAR left 0 # RateLimit-Limit=1, RateLimit-Remaining=0, RateLimit-Reset=soon"},
		{"c=2", "OK: OK 1/YEAR left 0 # RateLimit-Limit=1, RateLimit-Remaining=0, RateLimit-Reset=soon"},
		{"q=1 | d=1 | c=2", "OVER_LIMIT: OVER_LIMIT 1/YEAR left 0 | OVER_LIMIT 0/YEAR left 0 | OVER_LIMIT 1/YEAR left 0 " +
			"# RateLimit-Limit=1, RateLimit-Remaining=0, RateLimit-Reset=soon"},
	}},
	{Name: "headers without limits in shadow mode", Native: true, Settings: Settings{Headers: true}, Rules: `
  - {key: a, limit: 10}
  - {key: s, shadow_mode: true, limit: 1}
`, Steps: []Step{
		{"s=1 | a=1", "OK: OK 1/YEAR left 0 | OK 10/YEAR left 9 # RateLimit-Limit=10, RateLimit-Remaining=9, RateLimit-Reset=soon"},
		{"s=1", last},
		{"s=1 | a=1", "OK: OK 1/YEAR left 0 | OK 10/YEAR left 8 # RateLimit-Limit=10, RateLimit-Remaining=8, RateLimit-Reset=soon"},
	}},
	{Name: "headers with shadow mode of all", Native: true, Settings: Settings{Headers: true, Shadow: true}, Rules: "  - {key: a, limit: 1}\n", Steps: []Step{
		{"a=1", last},
	}},
	{Name: "metadata", Settings: Settings{Metadata: true}, Rules: `
  - {key: a, limit: 1, metadata: {x: 1, deep: {y: one, z: [true]}}}
  - {key: b, limit: 10, metadata: {x: 2, deep: {y: two, w: three}}}
  - {key: c, limit: 10}
`, Steps: []Step{
		{"c=1,d=2", "OK: OK % map[descriptors:[map[entries:[c=1 d=2]]] domain:metadata]"},
		{"a=1 hits:2 | @3", "OVER_LIMIT: OVER_LIMIT 1/YEAR left 0 % map[descriptors:[map[entries:[a=1] hitsAddend:2]] domain:metadata hitsAddend:3]"},
		{"a=2 | b=2", "OK: OK 1/YEAR left 0 | OK 10/YEAR left 9 % map[descriptors:[map[entries:[a=2]] map[entries:[b=2]]] domain:metadata " +
			"metadata:map[deep:map[w:three y:one z:[true]] x:1]]"},
	}},
	{Name: "wrong requests", Native: true, Rules: "  - {key: a, limit: 1}\n", Steps: []Step{
		{"domain: | a=1", "rpc error: code = InvalidArgument desc = rate limit domain must not be empty"},
		{"@1", "rpc error: code = InvalidArgument desc = rate limit descriptor list must not be empty"},
	}},
}
