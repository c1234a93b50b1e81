package main

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/sluiceproject/sluice/cmd/internal/gateway/authn"
	"github.com/sluiceproject/sluice/cmd/internal/term"
)

// tellsHeaders is an upstream that responds with the identity headers and credentials that it received.
func tellsHeaders(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range slices.Sorted(maps.Keys(r.Header)) {
			switch name {
			case "Authorization", "X-Api-Key", "X-User", "X-Plan", "X-Team", "X_user":
				fmt.Fprintf(w, "%s: %.10s;", name, strings.Join(r.Header[name], ","))
			}
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// API keys, JWTs and passwords through sluice serve: rules and upstreams get the identity, and no secrets.
func TestServeAuthentication(t *testing.T) {
	d := t.TempDir()
	in := func(name, text string) string {
		write(t, filepath.Join(d, name), text)
		return filepath.Join(d, name)
	}
	adas, hash := authn.NewKey()
	bobs, bobsHash := authn.NewKey()
	keys := in("keys.yaml", "keys:\n- {user: ada, plan: pro, hash: '"+hash+"'}\n- {user: bob, plan: free, hash: '"+bobsHash+"'}\n")
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	jwks := in("jwks.json", fmt.Sprintf(`{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"k","x":%q}]}`, base64.RawURLEncoding.EncodeToString(public)))
	signed := jwt.NewWithClaims(jwt.SigningMethodEdDSA, jwt.MapClaims{"sub": "eve", "team": "search", "exp": time.Now().Add(time.Hour).Unix(), "aud": "api"})
	signed.Header["kid"] = "k"
	token, err := signed.SignedString(private)
	if err != nil {
		t.Fatal(err)
	}
	signed.Claims.(jwt.MapClaims)["exp"] = time.Now().Add(2 * time.Hour).Unix()
	fresh, err := signed.SignedString(private) // not sent before
	if err != nil {
		t.Fatal(err)
	}
	users := in("users.yaml", "users:\n- {user: joe, hash: $2a$10$"+strings.Repeat("a", 53)+"}\n") // hash of an unknown password
	api := tellsHeaders(t)
	p, address := startGateway(t,
		fmt.Sprintf("{upstreams: {api: {servers: %q}}, routes: [{path: /open, upstream: api}, {path: /maybe, upstream: api, authentication: api_keys, allow_anonymous: true}, {path: /**, upstream: api, authentication: [jwt, api_keys, basic]}]}", api.URL),
		"rules: [{name: free, match: {attr: {plan: free}}, per: attr:user, limit: 2/h}]",
		fmt.Sprintf("authentication: {api_keys: {files: %q}, jwt: {algorithms: EdDSA, jwks_file: %q, audience: api}, basic: {files: %q}, identity_headers: {X-User: user, X-Plan: plan, X-Team: 'claim:team'}, failed_attempts: 5/h}", keys, jwks, users))
	ask := func(path string, headers ...string) string {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(headers); i += 2 {
			req.Header[headers[i]] = []string{headers[i+1]}
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode == http.StatusOK {
			return "200 " + string(text)
		}
		return fmt.Sprint(resp.StatusCode, " ", strings.Join(resp.Header["Www-Authenticate"], ", "))
	}
	const challenges = `401 ApiKey header="X-Api-Key", Bearer, Basic realm="Sluice", charset="UTF-8"`
	for _, tt := range []struct {
		path    string
		headers []string
		want    string
	}{
		{"/", nil, challenges},
		{"/", []string{"X-Api-Key", adas, "X-User", "root", "X_user", "root", "X-Team", "all"}, "200 X-Plan: pro;X-User: ada;"},
		{"/", []string{"Authorization", "Bearer " + token}, "200 Authorization: Bearer eyJ;X-Team: search;X-User: eve;"},
		{"/open", []string{"X-User", "root", "X-Api-Key", "upstream's"}, "200 X-Api-Key: upstream's;"},
		{"/maybe", []string{"X-User", "root"}, "200 "},
		{"/maybe", []string{"X-Api-Key", adas}, "200 X-Plan: pro;X-User: ada;"},
		{"/maybe", []string{"X-Api-Key", "canary-1"}, `401 ApiKey header="X-Api-Key"`},
		{"/", []string{"X-Api-Key", bobs}, "200 X-Plan: free;X-User: bob;"},
		{"/", []string{"X-Api-Key", bobs}, "200 X-Plan: free;X-User: bob;"},
		{"/", []string{"X-Api-Key", bobs}, "429 "},                             // by the rule of Bob's plan
		{"/", []string{"X-Api-Key", adas}, "200 X-Plan: pro;X-User: ada;"},     // the rule does not apply to Ada's plan
		{"/", []string{"Authorization", "Bearer " + token + "x"}, challenges},  // 2 of 5
		{"/", []string{"Authorization", "Basic am9lOmNhbmFyeQ=="}, challenges}, // joe:canary, 3 of 5
		{"/", []string{"Authorization", "Bearer eyJhbGciOiJub25lIn0.e30."}, challenges},
		{"/", []string{"X-Api-Key", "canary-5"}, challenges},
		{"/", []string{"X-Api-Key", "canary-6"}, "429 "},
		{"/", []string{"Authorization", "Bearer " + fresh}, "429 "},        // the token is not verified
		{"/", []string{"X-Api-Key", adas}, "200 X-Plan: pro;X-User: ada;"}, // Ada logged in from this address before
		{"/open", nil, "200 "},
	} {
		if got := ask(tt.path, tt.headers...); got != tt.want {
			t.Errorf("%s %.60q: got %s, want %s", tt.path, tt.headers, got, tt.want)
		}
	}
	write(t, keys, "keys: [canary]\n")
	p.signal(t, syscall.SIGHUP)
	p.await(t, "API keys invalid: last valid content stays in use")
	write(t, keys, "keys: []\n")
	p.await(t, "API keys changed") // without a reload
	for _, line := range p.log() {
		for _, secret := range []string{"canary", adas, bobs, token, "am9lOm"} {
			if strings.Contains(line, secret) {
				t.Errorf("a secret is logged: %s", line)
			}
		}
	}
}

// A service with invalid key or user files does not start, and reports all errors.
func TestServeBrokenAccounts(t *testing.T) {
	code, out, stderr := sluiceRun(t, "serve", "--config", "testdata/accounts/sluice.yaml")
	if code != term.ExitWrong || strings.Contains(out+stderr, "canary") || strings.Count(stderr, "broken.yaml:") != 3 || !strings.Contains(stderr, "users.yaml:2:23: hash:") {
		t.Errorf("exit %d\n%s%s", code, out, stderr)
	}
}
