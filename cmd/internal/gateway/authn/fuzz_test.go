package authn

import (
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// A file is read or rejected with positions, and errors never contain parts of it.
func FuzzFile(f *testing.F) {
	for _, name := range []string{"testdata/keys.txt", "testdata/users.txt"} {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		for _, c := range strings.Split(string(data), "==== case: ")[1:] {
			_, rest, _ := strings.Cut(c, "\n")
			input, _, _ := strings.Cut(rest, "==== result\n")
			f.Add([]byte(input))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, k := range []*kind{&keyKind, &userKind} {
			all, err := readAccounts(k, []string{"f"}, [][]byte{data})
			if err == nil {
				for _, e := range all {
					if k.hash(e.hash) != "" || e.identity.User == "" || e.identity.Attributes["user"] != e.identity.User || !sendable(e.identity.User) {
						t.Errorf("%+v is taken", e)
					}
				}
				continue
			}
			for _, fault := range leaves(err) {
				if strings.Contains(fault.Error(), "canary") {
					t.Errorf("a secret is shown: %v", fault)
				}
			}
		}
	})
}

func FuzzKeySet(f *testing.F) {
	s := signers()
	f.Add([]byte(keySet(rsaJWK("a", &s.rsa.PublicKey, `,"alg":"RS256"`), ecJWK("b", &s.ec.PublicKey), edJWK("c", s.ed))))
	f.Add([]byte(`{"keys":[{"kty":"oct","k":"AA"}]}`))
	f.Add([]byte(`{"keys":[{"kty":"EC","crv":"P-521","x":"AA","y":"AA"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		keys, err := parseKeySet(data)
		if (err == nil) != (len(keys) > 0) || len(keys) > maxKeysInSet {
			t.Errorf("%d keys, %v", len(keys), err)
		}
		for _, k := range keys {
			if len(k.algorithms) == 0 || k.key == nil {
				t.Errorf("%+v is taken", k)
			}
			for _, a := range k.algorithms {
				if IsSymmetric(a) || a == "none" {
					t.Errorf("%+v is for %s", k, a)
				}
			}
		}
	})
}

// Random tokens are never accepted and never cause a panic.
func FuzzToken(f *testing.F) {
	s := signers()
	c := claims("exp", time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC).Unix())
	good := sign(f, head("RS256", "kid", "r"), c, s.rsa)
	j := newJWT(f, JWTConfig{Algorithms: []string{"RS256", "ES256", "EdDSA"}}, keySet(rsaJWK("r", &s.rsa.PublicKey, ""), ecJWK("e", &s.ec.PublicKey), edJWK("d", s.ed)))
	for _, seed := range []string{
		"Bearer " + good, "Bearer " + sign(f, head("none"), c, nil), "Bearer " + sign(f, head("HS256", "kid", "r"), c, []byte("x")),
		"Bearer " + sign(f, head("ES256", "kid", "e"), c, s.ec), "bearer", "Bearer ..", "Basic x", "",
	} {
		f.Add(seed)
	}
	right := []string{signedPart(good), signedPart(sign(f, head("ES256", "kid", "e"), c, nil))}
	f.Fuzz(func(t *testing.T, value string) {
		r := request()
		r.Header["Authorization"] = []string{value}
		id, err := j.Authenticate(r)
		if err != nil {
			return
		}
		// Valid seeds, possibly with another encoding of the same signature.
		token, _ := cutScheme(value, "Bearer")
		if !slices.Contains(right, signedPart(token)) || id.User != "ada" {
			t.Errorf("%q gets in as %v", value, id.User)
		}
	})
}

// signedPart returns the part of a token that its signature covers.
func signedPart(token string) string { return token[:max(0, strings.LastIndex(token, "."))] }

// Reading a header is deterministic, and its result never includes the scheme.
func FuzzPlace(f *testing.F) {
	f.Add("Bearer x", "y")
	f.Add("bearer", "")
	f.Fuzz(func(t *testing.T, first, second string) {
		h := http.Header{"Authorization": {first, second}}
		if _, err := bearer.read(h); err == nil {
			t.Error("two headers are read")
		}
		h = http.Header{"Authorization": {first}}
		text, err := bearer.read(h)
		if (err == nil) != bearer.in(h) || err == nil && strings.HasPrefix(text, " ") {
			t.Errorf("%q: %q, %v", first, text, err)
		}
	})
}
