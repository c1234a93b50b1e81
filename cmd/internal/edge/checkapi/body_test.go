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

// repeated is a list of n times the text.
func repeated(text string, n int) string {
	return "[" + strings.TrimSuffix(strings.Repeat(text+",", n), ",") + "]"
}

// headersOf has n headers.
func headersOf(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"h%d":"v",`, i)
	}
	return `{"attributes":{"headers":{` + strings.TrimSuffix(b.String(), ",") + `}}}`
}

// Whatever is wrong with a body is said: which field, and what to write. loose are bodies that a schema cannot tell from
// sound ones.
func TestFaults(t *testing.T) {
	const check, reserve, settle = "/v1/check", "/v1/reserve", "/v1/settle"
	long := func(n int) string { return strings.Repeat("x", n) }
	tests := []struct {
		path, body, want string
		loose            bool
	}{
		{check, ``, `the body ends at byte 0, where an object, such as {"attributes":{"method":"GET","path":"/"}} is missing`, true},
		{check, `[]`, `is a list, at byte 0: write an object`, false},
		{check, `null`, `is null: write an object`, false},
		{check, `{}`, `there is nothing to check: write attributes`, false},
		{check, `{"cost":1}`, `there is nothing to check`, false},
		{check, `{` + aCheck, `the body ends at byte 26, where a comma or } is missing`, true},
		{check, `{` + aCheck + `}{}`, `something follows the object, at byte 27: send one JSON object and nothing else`, true},
		{check, `{` + aCheck + `} x`, `something follows the object`, true},
		{check, `{` + aCheck + "}\x00", `something follows the object`, true},
		{check, `{` + aCheck + `,}`, `a comma has nothing behind it`, true},
		{check, `{,` + aCheck + `}`, `write the name of a field, in double quotes`, true},
		{check, `{` + aCheck + ` "cost":1}`, `is a string, at byte 27: write a comma or }`, true},
		{check, `{"attributes"}`, `write a colon behind "attributes"`, true},
		{check, `{'attributes':{}}`, `write the name of a field, in double quotes`, true},
		{check, "{\"attributes\":{\"path\":\"/\xff\"}}", `the path is ambiguous or malformed: it is not UTF-8`, true},
		{check, "{\"attributes\":{\"headers\":{\"\xff\":\"\"}}}", `is not the name of a header`, true},
		{check, "\xff{}", `is something that is not JSON, at byte 0`, true},
		{check, `{"atributes":{}}`, `there is no field "atributes": did you mean "attributes"? There are attributes, domain`, false},
		{check, `{"Attributes":{}}`, `there is no field "Attributes": did you mean "attributes"?`, false},
		{check, `{` + aCheck + `,"ttl":"5m"}`, `there is no field "ttl"`, false},
		{check, `{"` + long(5000) + `":1}`, long(40) + "…", false},
		{check, `{` + aCheck + `,` + aCheck + `}`, `attributes: is there twice: remove one`, true},
		{check, `{` + aCheck + `,"cost":1,"cost":1}`, `cost: is there twice`, true},
		{check, `{` + aCheck + `,"cost":-1125899906842625}`, `cost: -1125899906842625 is not a whole number from -1125899906842624 to 1125899906842624`, false},
		{check, `{` + aCheck + `,"cost":-}`, `cost: - is not a whole number from -1125899906842624 to`, true},
		{check, `{` + aCheck + `,"cost":-01}`, `cost: -01 is not a whole number from -1125899906842624 to`, true},
		{check, `{` + aCheck + `,"cost":-1,"peek":true}`, `cost: is negative, which gives back, and peek changes nothing: leave one of them out`, true},
		{check, `{` + aCheck + `,"cost":1.5}`, `cost: 1.5 is not a whole number`, false},
		{check, `{` + aCheck + `,"cost":1e3}`, `cost: 1e3 is not a whole number`, true},
		{check, `{` + aCheck + `,"cost":01}`, `cost: 01 is not a whole number`, true},
		{check, `{` + aCheck + `,"cost":"1"}`, `cost: is a string, at byte 34: write a whole number`, false},
		{check, `{` + aCheck + `,"cost":null}`, `cost: is null: write a whole number from -1125899906842624 to 1125899906842624, or leave it out`, false},
		{check, `{` + aCheck + `,"cost":1125899906842625}`, `cost: 1125899906842625 is not a whole number from -1125899906842624 to`, false},
		{check, `{` + aCheck + `,"cost":99999999999999999999}`, `cost: 99999999999999999999 is not`, false},
		{check, `{` + aCheck + `,"peek":1}`, `peek: is a number, at byte 34: write true or false`, false},
		{check, `{` + aCheck + `,"peek":tru}`, `peek: is true or false, at byte 34: write true or false`, true},
		{check, `{` + aCheck + `,"domain":"d","descriptors":[[` + entry + `]]}`, `a check has attributes, or domain and descriptors, not both`, false},
		{check, `{"domain":"d"}`, `domain and descriptors go together`, false},
		{check, `{"descriptors":[[` + entry + `]]}`, `domain and descriptors go together`, false},
		{check, `{"domain":"","descriptors":[[` + entry + `]]}`, `domain: is empty: write the domain of a rule file`, false},
		{check, `{"domain":"d","descriptors":[]}`, `descriptors: is empty`, false},
		{check, `{"domain":"d","descriptors":[[]]}`, `descriptors[0]: is empty: write at least one entry`, false},
		{check, `{"domain":"d","descriptors":[` + entry + `]}`, `descriptors[0]: is an object, at byte 29: write a list of entries`, false},
		{check, `{"domain":"d","descriptors":[[` + entry + `],[{"value":"v"}]]}`, `descriptors[1][0]: the entry has no key`, false},
		{check, `{"domain":"d","descriptors":[[{"key":""}]]}`, `descriptors[0][0].key: is empty`, false},
		{check, `{"domain":"d","descriptors":[[{"key":"k","val":"v"}]]}`, `descriptors[0][0]: there is no field "val"`, false},
		{check, `{"domain":"d","descriptors":[[{"key":"k","key":"k"}]]}`, `descriptors[0][0].key: is there twice`, true},
		{check, `{"domain":"d","descriptors":` + repeated("["+entry+"]", 1001) + `}`, `descriptors: has more than 1000 descriptors: send fewer, or raise rls.max_descriptors`, false},
		{check, `{"checks":[]}`, `checks: is empty: write at least one check`, false},
		{check, `{"checks":{}}`, `checks: is an object, at byte 10: write a list of checks`, false},
		{check, `{"checks":[{` + aCheck + `},{}]}`, `checks[1]: there is nothing to check`, false},
		{check, `{"checks":[{"checks":[]}]}`, `checks[0]: there is no field "checks"`, false},
		{check, `{"checks":[{` + aCheck + `}],"cost":1}`, `checks: stands beside other fields`, false},
		{check, `{"cost":1,"checks":[{` + aCheck + `}]}`, `checks: stands beside other fields`, false},
		{check, `{"checks":[{` + aCheck + `,"cost":"x"}]}`, `checks[0].cost: is a string`, false},
		{check, `{"checks":[{` + aCheck + `}],"checks":[{` + aCheck + `}]}`, `checks: is there twice`, true},
		{check, `{"checks":` + repeated(`{`+aCheck+`}`, 101) + `}`, `checks: has more than 100 checks`, false},
		{check, `{"attributes":{"headers":"x"}}`, `attributes.headers: is a string, at byte 25: write an object`, false},
		{check, `{"attributes":{"header":{}}}`, `attributes: there is no field "header": did you mean "headers"?`, false},
		{check, `{"attributes":{"method":""}}`, `attributes.method: is empty: write a method, such as GET, or leave it out`, false},
		{check, `{"attributes":{"method":"G T"}}`, `attributes.method: "G T" is not a method`, false},
		{check, `{"attributes":{"path":""}}`, `attributes.path: is empty`, false},
		{check, `{"attributes":{"path":1}}`, `attributes.path: is a number`, false},
		{check, `{"attributes":{"path":"/","path":"/"}}`, `attributes.path: is there twice`, true},
		{check, `{"attributes":{"host":""}}`, `attributes.host: is empty`, false},
		{check, `{"attributes":{"ip":""}}`, `attributes.ip: is empty: write an address without port and zone`, false},
		{check, `{"attributes":{"ip":"192.0.2.1:80"}}`, `attributes.ip: "192.0.2.1:80" is not an address without port and zone, such as 192.0.2.1 or 2001:db8::1`, false},
		{check, `{"attributes":{"ip":"fe80::1%eth0"}}`, `attributes.ip: "fe80::1%eth0" is not an address`, false},
		{check, `{"attributes":{"ip":"192.0.2.01"}}`, `attributes.ip: "192.0.2.01" is not an address`, false},
		{check, `{"attributes":{"headers":{"X User":"a"}}}`, `attributes.headers: "X User" is not the name of a header`, false},
		{check, `{"attributes":{"headers":{"":"a"}}}`, `attributes.headers: a name is empty`, false},
		{check, `{"attributes":{"query":{"":"a"}}}`, `attributes.query: a name is empty`, false},
		{check, `{"attributes":{"query":{"` + long(1025) + `":"a"}}}`, `attributes.query: a name has 1025 bytes`, false},
		{check, `{"attributes":{"headers":{"X":1}}}`, `attributes.headers.X: is a number, at byte 30: write a string in double quotes, or a list of them`, false},
		{check, `{"attributes":{"headers":{"X":[]}}}`, `attributes.headers.X: is an empty list`, false},
		{check, `{"attributes":{"headers":{"X":["a",1]}}}`, `attributes.headers.X[1]: is a number`, false},
		{check, `{"attributes":{"headers":{"X":"a","X":"a"}}}`, `attributes.headers.X: is there twice`, true},
		{check, `{"attributes":{"claims":{"a":["x"]}}}`, `attributes.claims.a: is a list, at byte 29: write a string`, false},
		{check, `{"attributes":{"attributes":{"a":null}}}`, `attributes.attributes.a: is null: write a string`, false},
		{check, `{"attributes":{"query":{"a":"` + long(match.MaxAttributeBytes+1) + `"}}}`, `attributes.query.a: has 8193 bytes, at most 8192 are allowed`, false},
		{check, headersOf(257), `attributes.headers.h256: is one too many`, true},
		{check, `{"attributes":{"path":"a` + "\n" + `"}}`, `a string has a control character, at byte 24`, true},
		{check, `{"attributes":{"path":"\u00e9` + "\n" + `"}}`, `a string has a control character`, true},
		{check, `{"attributes":{"path":"\x"}}`, `a string has an escape that JSON does not know, at byte 23`, true},
		{check, `{"attributes":{"path":"/\ud800"}}`, `the path is ambiguous or malformed: it is not UTF-8`, true},
		{check, `{"attributes":{"path":"/\ud800\u00"}}`, `a string has an escape that is no character, at byte 30`, true},
		{check, `{"attributes":{"path":"\u00"}}`, `a string has an escape that is no character`, true},
		{check, `{"attributes":{"path":"x`, `the body ends inside a string`, true},
		{check, `{"attributes":{"path":"x\`, `escape`, true},
		{check, `{"attributes":{"path":"/posts?x=1"}}`, `attributes: rules: the path is ambiguous or malformed: it has a query`, true},
		{check, `{"attributes":{"path":"/posts;x"}}`, `send the path as the client did`, true},
		{check, `{"attributes":{"path":"posts"}}`, `it does not begin with a slash`, true},
		{check, `{"attributes":{"method":"POST","path":"/posts","headers":{"X-User":["a","b"]}}}`, `given more than once or may be read differently: header:X-User`, true},
		{check, `{"attributes":{"method":"POST","path":"/posts","headers":{"X-User":"a","x-user":"a"}}}`, `given more than once`, true},
		{check, `{"attributes":{"method":"POST","path":"/posts","headers":{"X-User":"a","X_User":"b"}}}`, `given more than once`, true},
		{reserve, `{` + aCheck + `,"peek":true}`, `there is no field "peek"`, false},
		{reserve, `{"checks":[]}`, `there is no field "checks"`, false},
		{reserve, `{` + aCheck + `,"cost":0}`, `cost: is 0, which reserves nothing`, false},
		{reserve, `{` + aCheck + `,"ttl":300}`, `ttl: is a number, at byte 33: write a duration from 1s to 1h`, false},
		{reserve, `{` + aCheck + `,"ttl":"5"}`, `ttl: "5" is not a duration from 1s to 1h, such as "5m"`, false},
		{reserve, `{` + aCheck + `,"ttl":"61m"}`, `ttl: "61m" is not a duration from 1s to 1h`, true},
		{reserve, `{` + aCheck + `,"ttl":"999ms"}`, `ttl: "999ms" is not`, true},
		{settle, `{}`, `reservation and actual go together`, false},
		{settle, `{"reservation":"x"}`, `reservation and actual go together`, false},
		{settle, `{"reservation":"x","actual":-1}`, `actual: is a number`, false},
		{settle, `{"reservation":5,"actual":1}`, `reservation: is a number`, false},
		{settle, `{"reservation":"x","actual":1,"x":1}`, `there is no field "x"`, false},
		{settle, `{"reservation":"x","actual":1}`, `reservation: not a reservation that this service gave: send what /v1/reserve answered`, true},
		{settle, `{"reservation":"` + long(50_000) + `","actual":1}`, `not a reservation that this service gave`, false},
		{settle, `{"reservation":"x","actual":1} 5`, `something follows the object`, true},
	}
	s := withRules(t, someRules...)
	c := theContract(t)
	for _, tt := range tests {
		name := tt.body[:min(len(tt.body), 80)]
		a := s.ask(t, tt.path, tt.body)
		if a.status != http.StatusBadRequest || !strings.Contains(a.Detail, tt.want) {
			t.Errorf("%s\nanswers %d %s\nwant %s", name, a.status, a.body, tt.want)
		}
		where, _ := c.at("paths", tt.path, "post", "requestBody", "content", "application/json", "schema")
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader([]byte(tt.body)))
		if err == nil {
			err = c.validate(where, value)
		}
		if err == nil && !tt.loose {
			t.Errorf("%s\nis sound by the OpenAPI file", name)
		}
	}
	s.expect(t, 200, check, `{"attributes":{"method":"POST","path":"/posts","headers":{"X-User":"ada"}}}`)
}

// What is odd but sound is taken, and is sound by the file too.
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
			t.Errorf("%.80s is taken, but by the OpenAPI file %v", body, err)
		}
	}
}

// What is not JSON, too large or sent in another way is refused, and the next request is answered.
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
