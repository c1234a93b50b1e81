package rlstest

// Common responses.
const (
	none   = "OK: OK"
	first  = "OK: OK 10/YEAR left 9"
	second = "OK: OK 10/YEAR left 8"
	over   = "OVER_LIMIT: OVER_LIMIT 1/YEAR left 0"
	last   = "OK: OK 1/YEAR left 0"
)

// cases are all cases.
var cases = append(append(append([]Case(nil), matchings...), acrosses...), answers...)

// matchings are cases about how one descriptor matches its limit.
var matchings = []Case{
	{Name: "unknown domain", Rules: "  - {key: k, limit: 10}\n", Steps: []Step{
		{"domain:nowhere | k=v", none},
		{"domain:Unknown-domain | k=v", none},
	}},
	{Name: "exact", Rules: "  - {key: k, value: v, limit: 10}\n", Steps: []Step{
		{"k=v", first},
		{"k=w", none},
		{"x=v", none},
		{"k=V", none},
		{"K=v", none},
		{"k=", none},
		{"k=v", second},
	}},
	{Name: "exact before wildcard and key only", Rules: `
  - {key: k, value: "*", limit: 3}
  - {key: k, limit: 2}
  - {key: k, value: v, limit: 10}
`, Steps: []Step{
		{"k=v", first},
		{"k=w", "OK: OK 3/YEAR left 2"},
	}},
	{Name: "wildcard before key only", Rules: `
  - {key: k, limit: 3}
  - {key: k, value: "v*", limit: 10}
`, Steps: []Step{
		{"k=vw", first},
		{"k=w", "OK: OK 3/YEAR left 2"},
	}},
	{Name: "first wildcard wins", Rules: `
  - {key: k, value: "vwx*", limit: 10}
  - {key: k, value: "v*", limit: 3}
  - {key: k, value: "vwxyz*", limit: 2}
`, Steps: []Step{
		{"k=vwxyz", first},
		{"k=vw", "OK: OK 3/YEAR left 2"},
	}},
	{Name: "wildcards", Rules: `
  - {key: bar, value: "bar*b", limit: 10}
  - {key: foo, value: "foo*bar*baz", limit: 10}
  - {key: path, value: "/a/*/c", limit: 10}
`, Steps: []Step{
		{"bar=barb", first},
		{"bar=barab", first},
		{"bar=bara", none},
		{"bar=xbarb", none},
		{"foo=foobarbaz", first},
		{"foo=foo-bar-baz", first},
		{"foo=foobaz", none},
		{"path=/a/b/c", first},
		{"path=/a/b/b/c", first},
		{"path=/a/c", none},
	}},
	{Name: "key only counts each value", Rules: "  - {key: k, limit: 10}\n", Steps: []Step{
		{"k=a", first},
		{"k=a", second},
		{"k=b", first},
		{"k=", first},
	}},
	{Name: "wildcard counts each value", Rules: `  - {key: k, value: "a*", limit: 10}` + "\n", Steps: []Step{
		{"k=a1", first},
		{"k=a1", second},
		{"k=a2", first},
	}},
	{Name: "share threshold", Rules: `
  - {key: files, value: "files/*", share_threshold: true, limit: 10}
  - key: tree
    value: "t*"
    share_threshold: true
    descriptors:
      - {key: user, limit: 10}
`, Steps: []Step{
		{"files=files/a.pdf", first},
		{"files=files/b.pdf", second},
		{"tree=t1,user=ada", first},
		{"tree=t2,user=ada", second},
		{"tree=t2,user=bob", first},
	}},
	{Name: "depth", Rules: `
  - key: a
    limit: 3
    descriptors:
      - {key: b, limit: 10}
`, Steps: []Step{
		{"a=1", "OK: OK 3/YEAR left 2"},
		{"a=1,b=2", first},
		{"a=1,b=2,c=3", none},
		{"b=2", none},
		{"b=2,a=1", none},
		{"a=1,c=3", none},
	}},
	{Name: "no limit above", Rules: `
  - key: a
    descriptors:
      - {key: b, limit: 10}
`, Steps: []Step{
		{"a=1", none},
		{"a=1,b=2", first},
	}},
	{Name: "no way back", Rules: `
  - key: a
    value: "1"
    descriptors:
      - {key: x, limit: 3}
  - key: a
    value: "1*"
    descriptors:
      - {key: y, limit: 3}
  - key: a
    descriptors:
      - {key: b, limit: 10}
`, Steps: []Step{
		{"a=1,b=2", none},
		{"a=12,b=2", none},
		{"a=2,b=2", first},
		{"a=1,y=2", none},
	}},
	{Name: "whitelisted", Rules: `
  - {key: k, limit: 10}
  - {key: k, value: v}
  - {key: k, value: "w*"}
`, Steps: []Step{
		{"k=v", none},
		{"k=w1", none},
		{"k=x", first},
	}},
	{Name: "quirks of composites", Rules: `
  - {key: foo_bar, limit: 10}
  - {key: a, value: b_c, limit: 10}
  - {key: k, limit: 3}
  - {key: k, value: "*", limit: 10}
  - {key: "f*o", limit: 10}
`, Steps: []Step{
		{"foo=bar", first},
		{"foo_bar=x", first},
		{"a_b=c", first},
		{"k=", first},
		{"fao=x", none},
		{"fax=xo", first},
	}},
	{Name: "override", Settings: Settings{Overrides: true, Negative: true}, Rules: `
  - {key: k, limit: 10}
  - {key: free, rate_limit: {unlimited: true}}
`, Steps: []Step{
		{"k=v limit:3/MONTH", "OK: OK 3/MONTH left 2"},
		{"z=v limit:1/YEAR hits:5", "OVER_LIMIT: OVER_LIMIT 1/YEAR left 0"},
		{"nothing=like,this=here limit:2/DAY", "OK: OK 2/DAY left 1"},
		{"free=1 limit:2/MONTH", "OK: OK 2/MONTH left 1"},
		{"domain:nowhere | k=v limit:3/MONTH", none},
	}},
	{Name: "invalid override", Native: true, Settings: Settings{Overrides: true, Negative: true}, Rules: "  - {key: k, limit: 10}\n", Steps: []Step{
		{"k=v limit:3/UNKNOWN", first},
		{"k=v limit:3/4294967295xYEAR", second},
		{"z=v limit:3/UNKNOWN", none},
		{"k=v limit:3/2xMONTH", "OK: OK 3/60xDAY left 2"},
	}},
}
