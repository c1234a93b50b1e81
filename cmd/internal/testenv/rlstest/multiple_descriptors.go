package rlstest

// acrosses are cases about the interaction of several descriptors of one request.
var acrosses = []Case{
	{Name: "each by itself", Rules: "  - {key: a, limit: 10}\n  - {key: b, limit: 3}\n", Steps: []Step{
		{"a=1 | b=1 | c=1", "OK: OK 10/YEAR left 9 | OK 3/YEAR left 2 | OK"},
		{"c=1 | b=1 | a=2", "OK: OK | OK 3/YEAR left 1 | OK 10/YEAR left 9"},
	}},
	{Name: "duplicates are each counted", Rules: "  - {key: a, limit: 10}\n", Steps: []Step{
		{"a=1 | a=1", "OK: OK 10/YEAR left 9 | OK 10/YEAR left 8"},
	}},
	{Name: "unlimited", Rules: `
  - {key: free, rate_limit: {unlimited: true, name: F, replaces: [{name: A}]}}
  - {key: a, rate_limit: {unit: year, requests_per_unit: 10, name: A}}
  - {key: over, rate_limit: {unit: year, requests_per_unit: 10, name: O, replaces: [{name: F}]}}
`, Steps: []Step{
		{"free=1", "OK: OK left 4294967295"},
		{"free=1 | a=1", "OK: OK left 4294967295 | OK"},
		{"a=1", "OK: OK 10/YEAR A left 9"},
		{"over=1 | free=1", "OK: OK 10/YEAR O left 9 | OK left 4294967295"},
	}},
	{Name: "replaces", Rules: `
  - {key: a, rate_limit: {unit: year, requests_per_unit: 10, name: A}}
  - {key: b, rate_limit: {unit: year, requests_per_unit: 10, name: B, replaces: [{name: A}]}}
  - {key: x, rate_limit: {unit: year, requests_per_unit: 10, name: X, replaces: [{name: "Y"}]}}
  - {key: "y", rate_limit: {unit: year, requests_per_unit: 10, name: "Y", replaces: [{name: X}]}}
  - {key: none, limit: 10}
`, Steps: []Step{
		{"a=1 | none=1", "OK: OK 10/YEAR A left 9 | OK 10/YEAR left 9"},
		{"a=1 | b=1", "OK: OK | OK 10/YEAR B left 9"},
		{"b=1 | a=1 | a=2", "OK: OK 10/YEAR B left 8 | OK | OK"},
		{"a=1", "OK: OK 10/YEAR A left 8"},
		{"x=1 | y=1", "OK: OK | OK"},
		{"x=1", "OK: OK 10/YEAR X left 9"},
	}},
	{Name: "hits", Rules: "  - {key: a, limit: 10}\n  - {key: b, limit: 10}\n", Steps: []Step{
		{"a=1 | @3", "OK: OK 10/YEAR left 7"},
		{"a=1 hits:2 | b=1 | @3", "OK: OK 10/YEAR left 5 | OK 10/YEAR left 7"},
		{"a=1 hits:0 | @3", "OK: OK 10/YEAR left 5"},
		{"a=1 | @0", "OK: OK 10/YEAR left 4"},
	}},
	{Name: "hits saturate", Native: true, Rules: "  - {key: a, limit: 10}\n", Steps: []Step{
		{"a=1 hits:18446744073709551615", "OVER_LIMIT: OVER_LIMIT 10/YEAR left 0"},
		{"a=1", first},
	}},
	{Name: "a limit of 0", Rules: "  - {key: a, limit: 0}\n", Steps: []Step{
		{"a=1", "OVER_LIMIT: OVER_LIMIT 0/YEAR left 0"},
	}},
	{Name: "denied costs nothing", Native: true, Rules: "  - {key: a, limit: 1}\n  - {key: b, limit: 10}\n", Steps: []Step{
		{"a=1 | b=1", "OK: OK 1/YEAR left 0 | OK 10/YEAR left 9"},
		{"a=1 | b=1", "OVER_LIMIT: OVER_LIMIT 1/YEAR left 0 | OK 10/YEAR left 9"},
		{"b=1 hits:10", "OVER_LIMIT: OVER_LIMIT 10/YEAR left 0"},
		{"b=1", "OK: OK 10/YEAR left 8"},
	}},
	{Name: "a query costs nothing", Native: true, Rules: "  - {key: a, limit: 1}\n  - {key: b, limit: 10}\n", Steps: []Step{
		{"a=1 hits:0", "OK: OK 1/YEAR left 1"},
		{"a=1 hits:0 | b=1 hits:0", "OK: OK 1/YEAR left 1 | OK 10/YEAR left 10"},
	}},
	{Name: "a query reports that nothing remains", Native: true, Rules: "  - {key: a, limit: 1}\n  - {key: b, limit: 10}\n", Steps: []Step{
		{"a=1", last},
		{"a=1 hits:0", over},
		{"a=1 hits:0 | b=1", "OVER_LIMIT: OVER_LIMIT 1/YEAR left 0 | OK 10/YEAR left 10"},
		{"a=2 hits:0 | b=1", "OK: OK 1/YEAR left 1 | OK 10/YEAR left 9"},
	}},
	{Name: "negative hits", Native: true, Settings: Settings{Overrides: true, Negative: true}, Rules: "  - {key: a, limit: 10}\n", Steps: []Step{
		{"a=1 hits:4", "OK: OK 10/YEAR left 6"},
		{"a=1 give:3", "OK: OK 10/YEAR left 9"},
		{"a=1 give:100", "OK: OK 10/YEAR left 10"},
		{"a=2 give:100", "OK: OK 10/YEAR left 10"},
		{"a=2", first},
	}},
	{Name: "negative hits whatever else is denied", Native: true, Settings: Settings{Overrides: true, Negative: true}, Rules: `
  - {key: a, limit: 10}
  - {key: b, limit: 1}
  - {key: c, limit: 10}
  - {key: bucket, rate_limit: {unit: year, requests_per_unit: 10, algorithm: token_bucket}}
  - {key: log, rate_limit: {unit: year, requests_per_unit: 10, algorithm: sliding_window_log}}
`, Steps: []Step{
		{"a=1 hits:10 | b=1", "OK: OK 10/YEAR left 0 | OK 1/YEAR left 0"},
		{"a=1 give:2 | b=1 | c=1", "OVER_LIMIT: OK 10/YEAR left 2 | OVER_LIMIT 1/YEAR left 0 | OK 10/YEAR left 10"},
		{"a=1 give:2 | c=1", "OK: OK 10/YEAR left 4 | OK 10/YEAR left 9"},
		{"bucket=1 hits:5", "OK: OK 10/YEAR left 5"},
		{"bucket=1 give:3", "OK: OK 10/YEAR left 8"},
		{"log=1 hits:5", "OK: OK 10/YEAR left 5"},
		{"log=1 give:3", "OK: OK 10/YEAR left 5"},
	}},
	{Name: "negative hits switched off", Native: true, Rules: "  - {key: a, limit: 10}\n", Steps: []Step{
		{"a=1 give:1", "rpc error: code = PermissionDenied desc = descriptor 1 has negative hits, which are disabled: " +
			"set is_negative_hits to false, or have the operator set rls.accept_negative_hits: true"},
		{"b=1 | a=1 limit:9/YEAR", "rpc error: code = PermissionDenied desc = descriptor 2 has a limit, and limits in requests are disabled: " +
			"leave limit out, or have the operator set rls.accept_limit_overrides: true"},
	}},
	{Name: "several limits", Native: true, Rules: `
  - key: a
    rate_limit:
      - {unit: year, requests_per_unit: 10, name: yearly}
      - {window: 300d, requests_per_unit: 3}
      - {unit: month, requests_per_unit: 100, algorithm: token_bucket}
`, Steps: []Step{
		{"a=1", "OK: OK 3/300xDAY yearly left 2"},
		{"a=1 hits:2", "OK: OK 3/300xDAY yearly left 0"},
		{"a=1", "OVER_LIMIT: OVER_LIMIT 3/300xDAY yearly left 0"},
		{"a=2 hits:4", "OVER_LIMIT: OVER_LIMIT 3/300xDAY yearly left 0"},
		{"a=2", "OK: OK 3/300xDAY yearly left 2"},
	}},
}
