package checkapi_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/sluiceproject/sluice/internal/match"
)

const (
	aCheck = `"attributes":{"path":"/"}`
	entry  = `{"key":"k","value":"v"}`
)

// repeated returns a JSON list with n copies of text.
func repeated(text string, n int) string {
	return "[" + strings.TrimSuffix(strings.Repeat(text+",", n), ",") + "]"
}

// headersOf returns a check with n headers.
func headersOf(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"h%d":"v",`, i)
	}
	return `{"attributes":{"headers":{` + strings.TrimSuffix(b.String(), ",") + `}}}`
}

// Errors name the field and how to fix it. loose marks invalid bodies that match the schema nevertheless.
func TestFaults(t *testing.T) {
	const check, reserve, settle = "/v1/check", "/v1/reserve", "/v1/settle"
	long := func(n int) string { return strings.Repeat("x", n) }
	tests := []struct {
		path, body, want string
		loose            bool
	}{
		{check, ``, `the body ends at byte 0: missing an object, such as {"attributes":{"method":"GET","path":"/"}}`, true},
		{check, `[]`, `found a list at byte 0: write an object`, false},
		{check, `null`, `null is not allowed: write an object`, false},
		{check, `{}`, `nothing to check: write attributes`, false},
		{check, `{"cost":1}`, `nothing to check`, false},
		{check, `{` + aCheck, `the body ends at byte 26: missing a comma or }`, true},
		{check, `{` + aCheck + `}{}`, `unexpected data after the object at byte 27: send one JSON object`, true},
		{check, `{` + aCheck + `} x`, `unexpected data after the object`, true},
		{check, `{` + aCheck + "}\x00", `unexpected data after the object`, true},
		{check, `{` + aCheck + `,}`, `trailing comma`, true},
		{check, `{,` + aCheck + `}`, `write the name of a field, in double quotes`, true},
		{check, `{` + aCheck + ` "cost":1}`, `found a string at byte 27: write a comma or }`, true},
		{check, `{"attributes"}`, `write a colon after "attributes"`, true},
		{check, `{'attributes':{}}`, `write the name of a field, in double quotes`, true},
		{check, "{\"attributes\":{\"path\":\"/\xff\"}}", `the path is ambiguous or malformed: not UTF-8`, true},
		{check, "{\"attributes\":{\"headers\":{\"\xff\":\"\"}}}", `is not a valid header name`, true},
		{check, "\xff{}", `found something that is not JSON at byte 0`, true},
		{check, `{"atributes":{}}`, `unknown field "atributes": did you mean "attributes"? The fields are attributes, domain`, false},
		{check, `{"Attributes":{}}`, `unknown field "Attributes": did you mean "attributes"?`, false},
		{check, `{` + aCheck + `,"ttl":"5m"}`, `unknown field "ttl"`, false},
		{check, `{"` + long(5000) + `":1}`, long(40) + "…", false},
		{check, `{` + aCheck + `,` + aCheck + `}`, `attributes: given twice: remove one`, true},
		{check, `{` + aCheck + `,"cost":1,"cost":1}`, `cost: given twice`, true},
		{check, `{` + aCheck + `,"cost":-1125899906842625}`, `cost: -1125899906842625 is not a whole number from -2^50 to 2^50`, false},
		{check, `{` + aCheck + `,"cost":-}`, `cost: - is not a whole number from -2^50 to`, true},
		{check, `{` + aCheck + `,"cost":-01}`, `cost: -01 is not a whole number from -2^50 to`, true},
		{check, `{` + aCheck + `,"cost":-1,"peek":true}`, `cost: a negative cost is a refund, which cannot be combined with peek: leave one of them out`, true},
		{check, `{` + aCheck + `,"cost":1.5}`, `cost: 1.5 is not a whole number`, false},
		{check, `{` + aCheck + `,"cost":1e3}`, `cost: 1e3 is not a whole number`, true},
		{check, `{` + aCheck + `,"cost":01}`, `cost: 01 is not a whole number`, true},
		{check, `{` + aCheck + `,"cost":"1"}`, `cost: found a string at byte 34: write a whole number`, false},
		{check, `{` + aCheck + `,"cost":null}`, `cost: null is not allowed: write a whole number from -2^50 to 2^50, or leave it out`, false},
		{check, `{` + aCheck + `,"cost":1125899906842625}`, `cost: 1125899906842625 is not a whole number from -2^50 to`, false},
		{check, `{` + aCheck + `,"cost":99999999999999999999}`, `cost: 99999999999999999999 is not`, false},
		{check, `{` + aCheck + `,"peek":1}`, `peek: found a number at byte 34: write true or false`, false},
		{check, `{` + aCheck + `,"peek":tru}`, `peek: found true or false at byte 34: write true or false`, true},
		{check, `{` + aCheck + `,"domain":"d","descriptors":[[` + entry + `]]}`, `attributes cannot be combined with domain and descriptors`, false},
		{check, `{"domain":"d"}`, `domain and descriptors go together`, false},
		{check, `{"descriptors":[[` + entry + `]]}`, `domain and descriptors go together`, false},
		{check, `{"domain":"","descriptors":[[` + entry + `]]}`, `domain: must not be empty: write the domain of a rule file`, false},
		{check, `{"domain":"d","descriptors":[]}`, `descriptors: must not be empty`, false},
		{check, `{"domain":"d","descriptors":[[]]}`, `descriptors[0]: must not be empty: write at least one entry`, false},
		{check, `{"domain":"d","descriptors":[` + entry + `]}`, `descriptors[0]: found an object at byte 29: write a list of entries`, false},
		{check, `{"domain":"d","descriptors":[[` + entry + `],[{"value":"v"}]]}`, `descriptors[1][0]: entry without a key`, false},
		{check, `{"domain":"d","descriptors":[[{"key":""}]]}`, `descriptors[0][0].key: must not be empty`, false},
		{check, `{"domain":"d","descriptors":[[{"key":"k","val":"v"}]]}`, `descriptors[0][0]: unknown field "val"`, false},
		{check, `{"domain":"d","descriptors":[[{"key":"k","key":"k"}]]}`, `descriptors[0][0].key: given twice`, true},
		{check, `{"domain":"d","descriptors":` + repeated("["+entry+"]", 1001) + `}`, `descriptors: more than 1000 descriptors: send fewer, or raise rls.max_descriptors`, false},
		{check, `{"checks":[]}`, `checks: must not be empty: write at least one check`, false},
		{check, `{"checks":{}}`, `checks: found an object at byte 10: write a list of checks`, false},
		{check, `{"checks":[{` + aCheck + `},{}]}`, `checks[1]: nothing to check`, false},
		{check, `{"checks":[{"checks":[]}]}`, `checks[0]: unknown field "checks"`, false},
		{check, `{"checks":[{` + aCheck + `}],"cost":1}`, `checks: cannot be combined with other fields`, false},
		{check, `{"cost":1,"checks":[{` + aCheck + `}]}`, `checks: cannot be combined with other fields`, false},
		{check, `{"checks":[{` + aCheck + `,"cost":"x"}]}`, `checks[0].cost: found a string`, false},
		{check, `{"checks":[{` + aCheck + `}],"checks":[{` + aCheck + `}]}`, `checks: given twice`, true},
		{check, `{"checks":` + repeated(`{`+aCheck+`}`, 101) + `}`, `checks: more than 100 checks`, false},
		{check, `{"attributes":{"headers":"x"}}`, `attributes.headers: found a string at byte 25: write an object`, false},
		{check, `{"attributes":{"header":{}}}`, `attributes: unknown field "header": did you mean "headers"?`, false},
		{check, `{"attributes":{"method":""}}`, `attributes.method: must not be empty: write a method, such as GET, or leave the field out`, false},
		{check, `{"attributes":{"method":"G T"}}`, `attributes.method: "G T" is not an HTTP method`, false},
		{check, `{"attributes":{"path":""}}`, `attributes.path: must not be empty`, false},
		{check, `{"attributes":{"path":1}}`, `attributes.path: found a number`, false},
		{check, `{"attributes":{"path":"/","path":"/"}}`, `attributes.path: given twice`, true},
		{check, `{"attributes":{"host":""}}`, `attributes.host: must not be empty`, false},
		{check, `{"attributes":{"ip":""}}`, `attributes.ip: must not be empty: write an address without port and zone`, false},
		{check, `{"attributes":{"ip":"192.0.2.1:80"}}`, `attributes.ip: "192.0.2.1:80" is not an address without port and zone, such as 192.0.2.1 or 2001:db8::1`, false},
		{check, `{"attributes":{"ip":"fe80::1%eth0"}}`, `attributes.ip: "fe80::1%eth0" is not an address`, false},
		{check, `{"attributes":{"ip":"192.0.2.01"}}`, `attributes.ip: "192.0.2.01" is not an address`, false},
		{check, `{"attributes":{"headers":{"X User":"a"}}}`, `attributes.headers: "X User" is not a valid header name`, false},
		{check, `{"attributes":{"headers":{"":"a"}}}`, `attributes.headers: empty name`, false},
		{check, `{"attributes":{"query":{"":"a"}}}`, `attributes.query: empty name`, false},
		{check, `{"attributes":{"query":{"` + long(1025) + `":"a"}}}`, `attributes.query: a name has 1025 bytes`, false},
		{check, `{"attributes":{"headers":{"X":1}}}`, `attributes.headers.X: found a number at byte 30: write a string in double quotes, or a list of them`, false},
		{check, `{"attributes":{"headers":{"X":[]}}}`, `attributes.headers.X: the list must not be empty`, false},
		{check, `{"attributes":{"headers":{"X":["a",1]}}}`, `attributes.headers.X[1]: found a number`, false},
		{check, `{"attributes":{"headers":{"X":"a","X":"a"}}}`, `attributes.headers.X: given twice`, true},
		{check, `{"attributes":{"claims":{"a":["x"]}}}`, `attributes.claims.a: found a list at byte 29: write a string`, false},
		{check, `{"attributes":{"attributes":{"a":null}}}`, `attributes.attributes.a: null is not allowed: write a string`, false},
		{check, `{"attributes":{"query":{"a":"` + long(match.MaxAttributeBytes+1) + `"}}}`, `attributes.query.a: has 8193 bytes: the maximum is 8192`, false},
		{check, headersOf(257), `attributes.headers.h256: too many values`, true},
		{check, `{"attributes":{"path":"a` + "\n" + `"}}`, `control character in a string at byte 24`, true},
		{check, `{"attributes":{"path":"\u00e9` + "\n" + `"}}`, `control character in a string`, true},
		{check, `{"attributes":{"path":"\x"}}`, `invalid escape in a string at byte 23`, true},
		{check, `{"attributes":{"path":"/\ud800"}}`, `the path is ambiguous or malformed: not UTF-8`, true},
		{check, `{"attributes":{"path":"/\ud800\u00"}}`, `invalid \u escape in a string at byte 30`, true},
		{check, `{"attributes":{"path":"\u00"}}`, `invalid \u escape in a string`, true},
		{check, `{"attributes":{"path":"x`, `the body ends within a string`, true},
		{check, `{"attributes":{"path":"x\`, `escape`, true},
		{check, `{"attributes":{"path":"/posts?x=1"}}`, `attributes: the path is ambiguous or malformed: contains a query`, true},
		{check, `{"attributes":{"path":"/posts;x"}}`, `send the path as the client did`, true},
		{check, `{"attributes":{"path":"posts"}}`, `no leading slash`, true},
		{check, `{"attributes":{"method":"POST","path":"/posts","headers":{"X-User":["a","b"]}}}`, `given more than once or may be read differently: header:X-User`, true},
		{check, `{"attributes":{"method":"POST","path":"/posts","headers":{"X-User":"a","x-user":"a"}}}`, `given more than once`, true},
		{check, `{"attributes":{"method":"POST","path":"/posts","headers":{"X-User":"a","X_User":"b"}}}`, `given more than once`, true},
		{reserve, `{` + aCheck + `,"peek":true}`, `unknown field "peek"`, false},
		{reserve, `{"checks":[]}`, `unknown field "checks"`, false},
		{reserve, `{` + aCheck + `,"cost":0}`, `cost: 0 reserves nothing`, false},
		{reserve, `{` + aCheck + `,"ttl":300}`, `ttl: found a number at byte 33: write a duration from 1s to 1h`, false},
		{reserve, `{` + aCheck + `,"ttl":"5"}`, `ttl: "5" is not a duration from 1s to 1h, such as "5m"`, false},
		{reserve, `{` + aCheck + `,"ttl":"61m"}`, `ttl: "61m" is not a duration from 1s to 1h`, true},
		{reserve, `{` + aCheck + `,"ttl":"999ms"}`, `ttl: "999ms" is not`, true},
		{settle, `{}`, `reservation and actual_cost go together`, false},
		{settle, `{"reservation":"x"}`, `reservation and actual_cost go together`, false},
		{settle, `{"reservation":"x","actual_cost":-1}`, `actual_cost: -1 is not a whole number from 0 to 2^50`, false},
		{settle, `{"reservation":5,"actual_cost":1}`, `reservation: found a number`, false},
		{settle, `{"actual":3}`, `unknown field "actual": did you mean "actual_cost"?`, false},
		{settle, `{"reservation":"x","actual_cost":1,"x":1}`, `unknown field "x"`, false},
		{settle, `{"reservation":"x","actual_cost":1}`, `reservation: not a reservation of this service: send the reservation returned by /v1/reserve`, true},
		{settle, `{"reservation":"` + long(50_000) + `","actual_cost":1}`, `not a reservation of this service`, false},
		{settle, `{"reservation":"x","actual_cost":1} 5`, `unexpected data after the object`, true},
	}
	s := withRules(t, someRules...)
	c := theContract(t)
	for _, tt := range tests {
		name := tt.body[:min(len(tt.body), 80)]
		a := s.ask(t, tt.path, tt.body)
		if a.status != http.StatusBadRequest || !strings.Contains(a.Detail, tt.want) {
			t.Errorf("%s\nreturns %d %s\nwant %s", name, a.status, a.body, tt.want)
		}
		where, _ := c.at("paths", tt.path, "post", "requestBody", "content", "application/json", "schema")
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader([]byte(tt.body)))
		if err == nil {
			err = c.validate(where, value)
		}
		if err == nil && !tt.loose {
			t.Errorf("%s\nis valid by the OpenAPI file", name)
		}
	}
	s.expect(t, 200, check, `{"attributes":{"method":"POST","path":"/posts","headers":{"X-User":"ada"}}}`)
}

// Unusual but valid bodies are accepted, and match the schema.
func TestOddBodies(t *testing.T) {
	s := withRules(t, someRules...)
	c := theContract(t)
	where, _ := c.at("paths", "/v1/check", "post", "requestBody", "content", "application/json", "schema")
	for _, body := range []string{
		" \n\t\r{ \"attributes\" : { \"path\" : \"/\" } } \n",
		`{"attributes":{}}`,
		`{"attributes":{"path":"/\u00e9\ud83d\ude00\/x","claims":{"a":"\"\\\b\f\n\r\t"}}}`,
		`{"attr\u0069butes":{"path":"/"},"cost":0}`,
		`{"attributes":{"headers":{},"query":{},"cookies":{},"claims":{},"attributes":{}}}`,
		`{"attributes":{"ip":"::ffff:192.0.2.1"}}`,
		`{"attributes":{"claims":{"sub":""},"query":{"a":["",""]}}}`,
		`{"attributes":{"claims":{"sub":"\u0000"}}}`,
		headersOf(256),
		`{"domain":"d","descriptors":[[{"key":"k"}]]}`,
		`{"domain":"d","descriptors":` + repeated(repeated(entry, 16), 32) + `,"cost":1125899906842624}`,
		`{"checks":` + repeated(`{`+aCheck+`,"peek":false}`, 100) + `}`,
	} {
		s.expect(t, 200, "/v1/check", body)
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader([]byte(body)))
		if err == nil {
			err = c.validate(where, value)
		}
		if err != nil {
			t.Errorf("%.80s is accepted, but by the OpenAPI file %v", body, err)
		}
	}
}

// Bodies that are not JSON, too large or incomplete are rejected, and the next request is served.
func TestRefusedRequests(t *testing.T) {
	s := withRules(t, someRules...)
	body := `{"attributes":{"method":"POST","path":"/posts","headers":{"X-User":"ada"}},"peek":true}`
	large := `{"attributes":{"claims":{"sub":"` + strings.Repeat("x", 64<<10) + `"}}}`
	for _, path := range []string{"/v1/check", "/v1/reserve", "/v1/settle"} {
		for name, tt := range map[string]struct {
			status int
			change func(r *http.Request)
		}{
			"no type":        {415, func(r *http.Request) { r.Header.Del("Content-Type") }},
			"a form":         {415, func(r *http.Request) { r.Header.Set("Content-Type", "application/x-www-form-urlencoded") }},
			"text":           {415, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }},
			"a parameter":    {400, func(r *http.Request) { r.URL.RawQuery = "cost=5" }},
			"like JSON":      {415, func(r *http.Request) { r.Header.Set("Content-Type", "application/jsonx") }},
			"garbage":        {415, func(r *http.Request) { r.Header.Set("Content-Type", ";;;") }},
			"another code":   {415, func(r *http.Request) { r.Header.Set("Content-Type", "application/json; charset=latin1") }},
			"compressed":     {415, func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") }},
			"too large":      {413, func(r *http.Request) { *r = *post(path, large) }},
			"without length": {413, func(r *http.Request) { *r = *post(path, large); r.ContentLength = -1 }},
			"cut short":      {400, func(r *http.Request) { *r = *post(path, body[:20]) }},
			"GET":            {405, func(r *http.Request) { r.Method = http.MethodGet }},
			"OPTIONS":        {405, func(r *http.Request) { r.Method = http.MethodOptions }},
		} {
			r := post(path, body)
			tt.change(r)
			if a := s.do(t, r); a.status != tt.status {
				t.Errorf("%s, %s: %d %s", path, name, a.status, a.body)
			}
		}
	}
	for _, sound := range []string{"application/json; charset=utf-8", "application/json;charset=UTF-8", "Application/JSON"} {
		r := post("/v1/check", body)
		r.Header.Set("Content-Type", sound)
		if a := s.do(t, r); a.status != 200 {
			t.Errorf("%s: %d %s", sound, a.status, a.body)
		}
	}
}
