package httplimit_test

import (
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/sluiceproject/sluice/httplimit"
)

// absent is the key of requests without the key attribute.
const absent = "\x00-"

func request(edit ...func(*http.Request)) *http.Request {
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "192.0.2.1:4711"
	for _, e := range edit {
		e(r)
	}
	return r
}

func header(name string, values ...string) func(*http.Request) {
	return func(r *http.Request) { r.Header[name] = values }
}

func query(raw string) func(*http.Request) {
	return func(r *http.Request) { r.URL.RawQuery = raw }
}

func basic(credentials string) func(*http.Request) {
	return header("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(credentials)))
}

func TestKeys(t *testing.T) {
	user := httplimit.ByHeader("x-user")
	tests := []struct {
		name string
		key  httplimit.KeyFunc
		r    *http.Request
		want string
	}{
		{"global", httplimit.Global(), request(), ""},
		{"header", user, request(header("X-User", "alice")), "alice"},
		{"header missing", user, request(), absent},
		{"header empty", user, request(header("X-User", "")), ""},
		{"header like missing", user, request(header("X-User", absent)), "\x00=" + absent},
		{"header with NUL", user, request(header("X-User", "\x00")), "\x00=\x00"},
		{"header keeps case", user, request(header("X-User", "Alice")), "Alice"},
		{"header with commas", user, request(header("X-User", "a, b")), "a, b"},
		{"underscore", user, request(header("X_User", "alice"), header("X_user", "bob")), absent},
		{"header and underscore", user, request(header("X_User", "mallory"), header("X-User", "alice")), "alice"},
		{"authorization", httplimit.ByHeader("Authorization"), request(header("Authorization", "Bearer x")), "Bearer x"},
		{"host", httplimit.ByHeader("host"), request(func(r *http.Request) { r.Host = "Shop.Example" }), "shop.example"},

		{"cookie", httplimit.ByCookie("id"), request(header("Cookie", "a=1; id=x; b=2")), "x"},
		{"cookie missing", httplimit.ByCookie("id"), request(header("Cookie", "a=1; idx=x")), absent},
		{"cookie in another spelling", httplimit.ByCookie("id"), request(header("Cookie", `a=1; ID="%78"`)), "x"},
		{"cookie empty", httplimit.ByCookie("id"), request(header("Cookie", "id=")), ""},

		{"query", httplimit.ByQuery("id"), request(query("a=1&id=x%20y")), "x y"},
		{"query missing", httplimit.ByQuery("id"), request(query("a=1")), absent},
		{"query empty", httplimit.ByQuery("id"), request(query("id=")), ""},
		{"query without value", httplimit.ByQuery("id"), request(query("id")), ""},
		{"query escaped name", httplimit.ByQuery("id"), request(query("%69d=x")), "x"},
		{"query malformed elsewhere", httplimit.ByQuery("id"), request(query("x=%zz&id=x")), "x"},
		{"query semicolon elsewhere", httplimit.ByQuery("id"), request(query("x=a;b&id=x")), "x"},

		{"path value", httplimit.ByPathValue("id"), request(func(r *http.Request) { r.SetPathValue("id", "7") }), "7"},
		{"path value missing", httplimit.ByPathValue("id"), request(), absent},

		{"user", httplimit.ByBasicAuthUser(), request(basic("alice:pw")), "alice"},
		{"user empty", httplimit.ByBasicAuthUser(), request(basic(":pw")), ""},
		{"user missing", httplimit.ByBasicAuthUser(), request(), absent},
		{"user bearer", httplimit.ByBasicAuthUser(), request(header("Authorization", "Bearer x")), absent},
		{"user NUL", httplimit.ByBasicAuthUser(), request(basic("\x00-:pw")), "\x00=" + absent},

		{"func", httplimit.ByFunc(func(r *http.Request) string { return r.Method }), request(), "GET"},
		{"func empty", httplimit.ByFunc(func(*http.Request) string { return "" }), request(), absent},

		{"combine", httplimit.Combine(user, httplimit.ByIP()), request(header("X-User", "a")), httplimit.JoinKey("a", "192.0.2.1")},
		{"combine one", httplimit.Combine(user), request(header("X-User", "a")), "\x00+\x01a"},
		{"combine none", httplimit.Combine(), request(), "\x00+"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.key(tt.r)
			if err != nil || got != tt.want {
				t.Errorf("key %q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

func TestKeysRepeated(t *testing.T) {
	broken := errors.New("session store is down")
	failing := func(*http.Request) (string, error) { return "", broken }
	tests := []struct {
		name string
		key  httplimit.KeyFunc
		r    *http.Request
		want error
	}{
		{"header", httplimit.ByHeader("X-User"), request(header("X-User", "a", "b")), httplimit.ErrAmbiguousKey},
		{"header the same", httplimit.ByHeader("X-User"), request(header("X-User", "a", "a")), httplimit.ErrAmbiguousKey},
		{"query", httplimit.ByQuery("id"), request(query("id=1&id=2")), httplimit.ErrAmbiguousKey},
		{"query escaped", httplimit.ByQuery("id"), request(query("id=1&%69%64=2")), httplimit.ErrAmbiguousKey},
		{"query malformed", httplimit.ByQuery("id"), request(query("id=%zz&id=x")), httplimit.ErrAmbiguousKey},
		{"query semicolon", httplimit.ByQuery("id"), request(query("id=a;b&id=x")), httplimit.ErrAmbiguousKey},
		{"query NUL", httplimit.ByQuery("id"), request(query("id=%00-")), httplimit.ErrAmbiguousKey},
		{"cookie", httplimit.ByCookie("id"), request(header("Cookie", "id=x; id=y")), httplimit.ErrAmbiguousKey},
		{"cookie in two lines", httplimit.ByCookie("id"), request(header("Cookie", "id=x", "id=y")), httplimit.ErrAmbiguousKey},
		{"inside combine", httplimit.Combine(httplimit.ByIP(), httplimit.ByQuery("id")), request(query("id=1&id=2")), httplimit.ErrAmbiguousKey},
		{"own error", httplimit.Combine(failing), request(), broken},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if key, err := tt.key(tt.r); !errors.Is(err, tt.want) {
				t.Errorf("key %q, error %v; want %v", key, err, tt.want)
			}
		})
	}
}

// TestCombineInjective combines pairs that would collide if keys were joined by a separator, or if absent and empty values
// were equal.
func TestCombineInjective(t *testing.T) {
	key := httplimit.Combine(httplimit.ByHeader("A"), httplimit.ByHeader("B"))
	some := func(s string) *string { return &s }
	values := []*string{
		nil, some(""), some("a"), some("b"), some("ab"), some("a:b"), some(":"), some("|"), some("a|b"), some("\x00"),
		some("\x00-"), some("\x01a"), some("\x00+"), some("\x00=\x00"), some(","), some("a,b"), some("{a}"), some("a\r\nb"),
		some("1:a"), some("\x01"), some("\x02ab"), some("\x00="),
	}
	seen := map[string][2]*string{}
	for _, a := range values {
		for _, b := range values {
			r := request()
			if a != nil {
				r.Header["A"] = []string{*a}
			}
			if b != nil {
				r.Header["B"] = []string{*b}
			}
			k, err := key(r)
			if err != nil {
				t.Fatal(err)
			}
			if other, dup := seen[k]; dup {
				t.Errorf("%v and %v have the same key %q", other, [2]*string{a, b}, k)
			}
			seen[k] = [2]*string{a, b}
		}
	}
	for _, pair := range [][2]string{
		{httplimit.JoinKey(), httplimit.JoinKey("")},
		{httplimit.JoinKey("a"), httplimit.JoinKey("a", "")},
		{httplimit.JoinKey("a", "b"), httplimit.JoinKey("ab")},
		{httplimit.JoinKey("a", "b"), httplimit.JoinKey("b", "a")},
		{httplimit.JoinKey(httplimit.JoinKey("a"), "b"), httplimit.JoinKey("a", httplimit.JoinKey("b"))},
	} {
		if pair[0] == pair[1] {
			t.Errorf("different parts have the same key %q", pair[0])
		}
	}
}

func TestKeyAllocations(t *testing.T) {
	v6 := request(func(r *http.Request) { r.RemoteAddr = "[2001:db8::1]:4711" })
	proxied := request(header("X-Forwarded-For", "9.9.9.9, 203.0.113.7, 10.0.0.2"), func(r *http.Request) { r.RemoteAddr = tp })
	forwarded := request(header("Forwarded", `for=9.9.9.9, for=203.0.113.7;proto=https`), func(r *http.Request) { r.RemoteAddr = tp })
	user := request(header("X-User", "alice"))
	tests := []struct {
		name string
		key  httplimit.KeyFunc
		r    *http.Request
		most float64
	}{
		{"global", httplimit.Global(), user, 0},
		{"ip", httplimit.ByIP(), user, 0},
		{"ip v6", httplimit.ByIP(), v6, 1},
		{"ip behind proxies", ways["xff"], proxied, 0},
		{"ip forwarded", ways["fwd"], forwarded, 0},
		{"header", httplimit.ByHeader("X-User"), user, 0},
		{"header missing", httplimit.ByHeader("X-Other"), user, 0},
		{"query", httplimit.ByQuery("id"), request(query("a=1&id=x")), 0},
		{"combine", httplimit.Combine(httplimit.ByIP(), httplimit.ByHeader("X-User")), user, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := testing.AllocsPerRun(100, func() { _, _ = tt.key(tt.r) })
			if got > tt.most {
				t.Errorf("%v allocations, want at most %v", got, tt.most)
			}
		})
	}
}

// FuzzCombine: keys are equal only if all parts are equal; absent and empty parts differ.
func FuzzCombine(f *testing.F) {
	f.Add("a", "b", "a", "b", byte(0))
	f.Add("a", "", "", "a", byte(3))
	f.Add("\x00-", "", "", "", byte(0xc))
	f.Add("\x01a", "", "a", "\x00", byte(0))
	f.Add("\x01a", "", "a", "\x01", byte(0))
	key := httplimit.Combine(httplimit.ByHeader("A"), httplimit.ByQuery("b"))
	make := func(a, b string, missing byte) *http.Request {
		r := request()
		if missing&1 == 0 {
			r.Header["A"] = []string{a}
		}
		if missing&2 == 0 {
			r.URL.RawQuery = url.Values{"b": {b}}.Encode()
		}
		return r
	}
	f.Fuzz(func(t *testing.T, a1, b1, a2, b2 string, missing byte) {
		m1, m2 := missing&3, missing>>2&3
		k1, err1 := key(make(a1, b1, m1))
		k2, err2 := key(make(a2, b2, m2))
		doubt1, doubt2 := m1&2 == 0 && strings.Contains(b1, "\x00"), m2&2 == 0 && strings.Contains(b2, "\x00")
		if (err1 != nil) != doubt1 || (err2 != nil) != doubt2 {
			t.Fatal(err1, err2)
		}
		if doubt1 || doubt2 {
			return
		}
		same := m1 == m2 && (m1&1 != 0 || a1 == a2) && (m1&2 != 0 || b1 == b2)
		if same != (k1 == k2) {
			t.Errorf("(%q, %q, missing %b) has key %q and (%q, %q, missing %b) has %q", a1, b1, m1, k1, a2, b2, m2, k2)
		}
		if (httplimit.JoinKey(a1, b1) == httplimit.JoinKey(a2, b2)) != (a1 == a2 && b1 == b2) {
			t.Errorf("Join(%q, %q) and Join(%q, %q)", a1, b1, a2, b2)
		}
	})
}

// FuzzQuery: ByQuery returns the value that the handler reads, or rejects the request.
func FuzzQuery(f *testing.F) {
	for _, s := range []string{"", "id=1", "id=1&id=2", "%69d=%00&x", "id;id=2", "id=%zz", "&&=&id", "id=a+b"} {
		f.Add(s)
	}
	key := httplimit.ByQuery("id")
	f.Fuzz(func(t *testing.T, raw string) {
		values, _ := url.ParseQuery(raw)
		got, err := key(request(query(raw)))
		switch seen := values["id"]; {
		case err == nil && len(seen) == 0 && got != absent,
			err == nil && len(seen) == 1 && seen[0] != got && "\x00="+seen[0] != got,
			(err != nil || len(seen) > 1) && !errors.Is(err, httplimit.ErrAmbiguousKey):
			t.Errorf("query %q has values %q and key %q, %v", raw, seen, got, err)
		}
	})
}
