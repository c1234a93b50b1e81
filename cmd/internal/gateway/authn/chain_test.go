package authn

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/memstore"
)

// methods contains one method of each kind, with the user ada.
type methods struct {
	keys  *Keys
	jwt   *JWT
	basic *Basic
	token string // a valid token
}

func allMethods(t testing.TB) *methods {
	t.Helper()
	s := signers()
	m := &methods{
		keys:  keysOf(t, KeysConfig{Bearer: true}, "- {user: old, expires: 2020-01-01, hash: '"+hashed("key-of-old")+"'}\n"),
		jwt:   newJWT(t, JWTConfig{Algorithms: []string{"RS256"}}, keySet(rsaJWK("r", &s.rsa.PublicKey, ""))),
		basic: usersOf(t, user("ada", fakeHash(10, "a"), "")),
		token: sign(t, head("RS256", "kid", "r"), claims("team", "search"), s.rsa),
	}
	counted(m.basic)
	return m
}

func attempts(t testing.TB, most int64) *Attempts {
	t.Helper()
	l, err := sluice.New(memstore.New(), "attempts", sluice.Per(most, time.Hour).WithAlgorithm(sluice.FixedWindow))
	if err != nil {
		t.Fatal(err)
	}
	return NewAttempts(l)
}

func TestChain(t *testing.T) {
	m := allMethods(t)
	login := "Basic " + strings.TrimPrefix(credentials("ada:"+fakeHash(10, "a")).Header.Get("Authorization"), "Basic ")
	all := NewChain(ChainConfig{Methods: []Method{m.basic, m.jwt, m.keys}}) // keys are tried first, in any order
	optional := NewChain(ChainConfig{Methods: []Method{m.keys, m.jwt, m.basic}, Optional: true})
	only := NewChain(ChainConfig{Methods: []Method{m.jwt}})
	open := NewChain(ChainConfig{})
	for _, tt := range []struct {
		chain   *Chain
		headers []string
		want    string
	}{
		{all, []string{"X-Api-Key", "key-of-ada"}, "ada"},
		{all, []string{"Authorization", "Bearer key-of-ada"}, "ada"},
		{all, []string{"Authorization", "Bearer " + m.token}, "ada"},
		{all, []string{"Authorization", login}, "ada"},
		{all, nil, `401 credentials are required: see the WWW-Authenticate header`},
		{all, []string{"Authorization", "Negotiate x"}, `401 credentials are required: see the WWW-Authenticate header`},
		{all, []string{"Authorization", "Bearer wrong"}, "401 the API key is unknown"},
		{all, []string{"Authorization", "Bearer a.b.c"}, "401 the token cannot be read: send a signed JWT"},
		{all, []string{"X-Api-Key", "wrong", "Authorization", "Bearer " + m.token}, "401 the API key is unknown"}, // no other method is tried
		{all, []string{"X-Api-Key", "key-of-old"}, "401 the API key expired at 2020-01-01T00:00:00Z: request a new one"},
		{only, []string{"X-Api-Key", "key-of-ada"}, `401 credentials are required: see the WWW-Authenticate header`},
		{only, []string{"Authorization", "Bearer key-of-ada"}, "401 the token cannot be read: send a signed JWT"},
		{optional, nil, ""},
		{optional, []string{"X-Api-Key", "key-of-ada"}, "ada"},
		{optional, []string{"X-Api-Key", "wrong"}, "401 the API key is unknown"},
		{open, []string{"X-Api-Key", "wrong"}, ""},
	} {
		id, refused := tt.chain.Admit(request(tt.headers...))
		got := id.User
		if refused != nil {
			got = fmt.Sprint(refused.Status, " ", refused.Detail)
			if len(refused.Challenges) != len(tt.chain.cfg.Methods) {
				t.Errorf("%.60q: challenges %q", tt.headers, refused.Challenges)
			}
		}
		if got != tt.want {
			t.Errorf("%.60q: got %s, want %s", tt.headers, got, tt.want)
		}
	}
	_, refused := all.Admit(request())
	want := []string{`ApiKey header="X-Api-Key"`, `Basic realm="Sluice", charset="UTF-8"`, "Bearer"}
	if !slices.Equal(refused.Challenges, want) {
		t.Errorf("got %q", refused.Challenges)
	}
}

// Credentials, checked or not, are forwarded only if their method forwards them and they are right.
func TestStrip(t *testing.T) {
	m := allMethods(t)
	kept := keysOf(t, KeysConfig{Bearer: true, Forward: true}, "")
	away := newJWT(t, JWTConfig{Algorithms: []string{"RS256"}, Strip: true, KeySetFile: m.jwt.cfg.KeySetFile}, "")
	login := credentials("ada:" + fakeHash(10, "a")).Header.Get("Authorization")
	for _, tt := range []struct {
		methods []Method
		headers []string
		want    string // remaining headers
	}{
		{[]Method{m.keys}, []string{"X-Api-Key", "key-of-ada", "X_Api_Key", "x", "Accept", "*/*"}, "Accept"},
		{[]Method{m.keys}, []string{"Authorization", "Bearer key-of-ada"}, ""},
		{[]Method{m.keys}, []string{"X-Api-Key", "key-of-ada", "Authorization", "Basic upstream's-own"}, "Authorization"},
		{[]Method{m.keys}, []string{"X-Api-Key", "key-of-ada", "Authorization", "Bearer a.b.c"}, ""},
		{[]Method{kept}, []string{"X-Api-Key", "key-of-ada"}, "X-Api-Key"},
		{[]Method{kept}, []string{"Authorization", "Bearer key-of-ada"}, "Authorization"},
		{[]Method{kept, m.jwt}, []string{"X-Api-Key", "key-of-ada", "Authorization", "Bearer a.b.c"}, "X-Api-Key"}, // not checked
		{[]Method{m.jwt}, []string{"Authorization", "Bearer " + m.token}, "Authorization"},
		{[]Method{m.keys, m.jwt}, []string{"Authorization", "Bearer " + m.token}, "Authorization"},
		{[]Method{m.keys, away}, []string{"Authorization", "Bearer " + m.token}, ""},
		{[]Method{m.basic, m.jwt}, []string{"Authorization", login}, ""},
		{[]Method{m.jwt}, []string{"Authorization", "Negotiate upstream's-own"}, "Authorization"},
		{nil, []string{"Authorization", "Bearer a.b.c", "X-Api-Key", "x"}, "Authorization X-Api-Key"},
	} {
		c := NewChain(ChainConfig{Methods: tt.methods, Optional: true})
		r := request(tt.headers...)
		id, refused := c.Admit(r)
		if refused != nil {
			t.Fatalf("%.60q: %v", tt.headers, refused)
		}
		c.Strip(r.Header, &id)
		var left []string
		for name := range r.Header {
			left = append(left, name)
		}
		slices.Sort(left)
		if got := strings.Join(left, " "); got != tt.want {
			t.Errorf("%.60q: %s is left, want %s", tt.headers, got, tt.want)
		}
	}
}

func TestIdentityHeaders(t *testing.T) {
	m := allMethods(t)
	h, err := NewHeaders(map[string]string{"x-user": "user", "X-Plan": "plan", "X-Team": "claim:team", "X-Missing": "claim:none"})
	if err != nil {
		t.Fatal(err)
	}
	spoofed := []string{"X-User", "root", "X-User", "admin", "x_user", "root", "X-PLAN", "gold", "X_plan", "gold", "X-Team", "all", "X-Missing", "y", "X-Users", "stays"}
	for name, tt := range map[string]struct {
		headers []string
		want    string
	}{
		"nobody":  {nil, "X-Users: stays"},
		"a key":   {[]string{"X-Api-Key", "key-of-ada"}, "X-Api-Key: key-of-ada, X-Plan: pro, X-User: ada, X-Users: stays"},
		"a token": {[]string{"Authorization", "Bearer " + m.token}, "Authorization: Bearer " + m.token + ", X-Plan: pro, X-Team: search, X-User: ada, X-Users: stays"},
		"wrong":   {[]string{"X-Api-Key", "wrong"}, "X-Api-Key: wrong, X-Users: stays"},
	} {
		r := request(append(spoofed, tt.headers...)...)
		r.Header["X_user"] = []string{"root"} // as received over HTTP/2
		NewChain(ChainConfig{Methods: []Method{m.keys, m.jwt}, Optional: true, Headers: h}).Admit(r)
		var got []string
		for name, values := range r.Header {
			got = append(got, name+": "+strings.Join(values, "|"))
		}
		slices.Sort(got)
		if got := strings.Join(got, ", "); got != tt.want {
			t.Errorf("%s: got %s, want %s", name, got, tt.want)
		}
	}
	for header, value := range map[string]string{
		"X User": "user", "": "user", "X-User": "", "X-Claim": "claim:", "host": "user", "Authorization": "user", "x-forwarded-for": "user",
	} {
		if _, err := NewHeaders(map[string]string{header: value}); err == nil {
			t.Errorf("%q: %q is taken", header, value)
		}
	}
	if _, err := NewHeaders(map[string]string{"X-User": "user", "X_User": "plan"}); err == nil {
		t.Error("two headers that are one to some are taken")
	}
	// Values that would be parsed as another value are omitted.
	id := &Identity{Claims: map[string]string{"team": "a\r\nX-Admin: 1"}, Attributes: map[string]string{"user": " ada", "plan": "größe"}}
	to := http.Header{}
	h.set(to, id)
	if len(to) != 1 || to.Get("X-Plan") != "größe" {
		t.Errorf("got %v", to)
	}
}

// After too many wrong credentials no credentials from the address are checked, not even right ones; other addresses are served.
func TestAttempts(t *testing.T) {
	m := allMethods(t)
	c := NewChain(ChainConfig{Methods: []Method{m.keys, m.jwt}, Optional: true, Attempts: attempts(t, 3)})
	ask := func(from string, headers ...string) int {
		r := request(headers...)
		r.RemoteAddr = from
		if _, refused := c.Admit(r); refused != nil {
			if refused.Status == http.StatusTooManyRequests && (refused.RetryAfter <= 0 || refused.Challenges != nil) {
				t.Errorf("got %+v", refused)
			}
			return refused.Status
		}
		return http.StatusOK
	}
	const eve, adas, home = "192.0.2.1:1000", "192.0.2.2:1000", "192.0.2.3:1000"
	for range 20 { // none of these is a guess
		if got := ask(eve, "X-Api-Key", "key-of-old"); got != 401 {
			t.Fatal(got)
		}
		if got := ask(home, "X-Api-Key", "key-of-ada"); got != 200 {
			t.Fatal(got)
		}
	}
	for i, want := range []int{401, 401, 401, 429, 429} {
		if got := ask(eve, "X-Api-Key", fmt.Sprint("wrong", i)); got != want {
			t.Errorf("attempt %d: %d, want %d", i, got, want)
		}
	}
	for name, tt := range map[string]struct {
		from    string
		headers []string
		want    int
	}{
		"right, from there":           {eve, []string{"X-Api-Key", "key-of-ada"}, 429},
		"right, from another port":    {"192.0.2.1:2000", []string{"X-Api-Key", "key-of-ada"}, 429},
		"as IPv6":                     {"[::ffff:192.0.2.1]:2000", []string{"X-Api-Key", "key-of-ada"}, 429},
		"a token":                     {eve, []string{"Authorization", "Bearer " + m.token}, 429},
		"nothing":                     {eve, nil, 200},
		"right, from elsewhere":       {adas, []string{"X-Api-Key", "key-of-ada"}, 200},
		"right, without an address":   {"@", []string{"X-Api-Key", "key-of-ada"}, 200},
		"wrong, but nobody asks here": {eve, []string{"Cookie", "wrong"}, 200},
	} {
		if got := ask(tt.from, tt.headers...); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
	for i, want := range []int{401, 401, 401, 429} { // the addresses of one /64
		if got := ask(fmt.Sprintf("[2001:db8::%d]:1", i), "X-Api-Key", "wrong"); got != want {
			t.Errorf("IPv6, attempt %d: %d, want %d", i, got, want)
		}
	}
	c = NewChain(ChainConfig{Methods: []Method{m.keys}, Attempts: attempts(t, 1), Client: func(r *http.Request) string { return r.Header.Get("X-Client") }})
	for _, tt := range []struct {
		client string
		want   int
	}{{"a", 401}, {"a", 429}, {"b", 401}} {
		if got := ask(eve, "X-Api-Key", "wrong", "X-Client", tt.client); got != tt.want {
			t.Errorf("by another address: %s: %d, want %d", tt.client, got, tt.want)
		}
	}
}

func TestUnavailable(t *testing.T) {
	for _, err := range []error{ErrBusy, ErrUnavailable, fmt.Errorf("something else")} {
		_, refused := NewChain(ChainConfig{Methods: []Method{failing{err}}, Optional: true, Attempts: attempts(t, 1)}).Admit(request("X-Api-Key", "x"))
		if refused == nil || refused.Status != http.StatusServiceUnavailable || refused.RetryAfter <= 0 || refused.Challenges != nil {
			t.Errorf("%v: %+v", err, refused)
		}
	}
}

type failing struct{ err error }

func (f failing) Authenticate(*http.Request) (Identity, error) { return Identity{}, f.err }
func (f failing) Info() *MethodInfo                            { return &MethodInfo{Places: []Place{{Header: "X-Api-Key"}}} }

// BenchmarkAdmit measures the authentication of a request.
func BenchmarkAdmit(b *testing.B) {
	m := allMethods(b)
	h, err := NewHeaders(map[string]string{"X-User": "user"})
	if err != nil {
		b.Fatal(err)
	}
	c := NewChain(ChainConfig{Methods: []Method{m.keys, m.jwt, m.basic}, Attempts: attempts(b, 10), Headers: h})
	for name, r := range map[string]*http.Request{
		"key":      request("X-Api-Key", "key-of-ada"),
		"token":    request("Authorization", "Bearer "+m.token),
		"password": credentials("ada:" + fakeHash(10, "a")),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if id, _ := c.Admit(r); id.User != "ada" {
					b.Fatal("it is not ada")
				}
			}
		})
	}
}
