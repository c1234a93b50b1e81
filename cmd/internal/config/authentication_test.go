package config_test

import (
	"testing"
	"time"

	"github.com/sluiceproject/sluice/cmd/internal/config"
)

const authenticationAll = `
authentication:
  api_keys: {files: [keys.yaml, /more.yaml], header: X-Key, bearer: true, forward_credentials: true}
  jwt:
    algorithms: [RS256, ES256]
    jwks_url: http://issuer.example.com/jwks
    jwks_ca_file: jca
    jwks_refresh: 1m
    allow_insecure_jwks_url: true
    issuer: https://issuer.example.com
    audience: [api, web]
    leeway: 0s
    user_claim: email
    plan_claim: tier
    forward_credentials: false
    # Neither goes with jwks_url: secret_file: jwks_file:
  basic: {files: users.yaml, realm: Ours, forward_credentials: true}
  identity_headers: {X-User: user, X-Team: "claim:team"}
  failed_attempts: 5/h
`

func authenticationWanted(in func(string) string) config.Authentication {
	return config.Authentication{
		APIKeys: config.APIKeys{Files: []string{in("keys.yaml"), "/more.yaml"}, Header: "X-Key", Bearer: true, ForwardCredentials: true},
		JWT: config.JWT{
			Algorithms: []string{"RS256", "ES256"}, JWKSURL: "http://issuer.example.com/jwks", JWKSCAFile: in("jca"), JWKSRefresh: time.Minute,
			AllowInsecureJWKSURL: true, Issuer: "https://issuer.example.com", Audience: []string{"api", "web"}, UserClaim: "email", PlanClaim: "tier",
		},
		Basic:           config.Basic{Files: []string{in("users.yaml")}, Realm: "Ours", ForwardCredentials: true},
		IdentityHeaders: map[string]string{"X-User": "user", "X-Team": "claim:team"}, FailedAttempts: "5/h",
	}
}

func TestAuthenticationFaults(t *testing.T) {
	const routes = "listeners: {gateway: {address: '127.0.0.1:0'}}\ngateway: {upstreams: {a: {servers: ['http://127.0.0.1:1']}}, routes: [{upstream: a, "
	for _, tt := range []struct{ name, text, want string }{
		{"keys without files", "authentication: {api_keys: {header: X-Key}}", "f:1:28: authentication.api_keys: there are no files: write files: [api_keys.yaml], or remove it"},
		{"an algorithm that is none", "authentication: {jwt: {algorithms: [none], jwks_file: f}}", `f:1:37: authentication.jwt.algorithms: is "none": write RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512, EdDSA, HS256, HS384 or HS512`},
		{"no algorithms", "authentication: {jwt: {jwks_file: f}}", "f:1:23: authentication.jwt: there are no algorithms: write those of your issuer, such as algorithms: [RS256]"},
		{"both kinds", "authentication: {jwt: {algorithms: [HS256, RS256], secret_file: f}}", "f:1:36: authentication.jwt.algorithms: HS256, HS384 and HS512 use a shared secret, all others use public keys: write one kind only"},
		{"no keys", "authentication: {jwt: {algorithms: [RS256]}}", "f:1:23: authentication.jwt: write one of secret_file, jwks_file and jwks_url"},
		{"two sources", "authentication: {jwt: {algorithms: [RS256], jwks_file: f, jwks_url: 'https://x/'}}", "f:1:23: authentication.jwt: write one of secret_file, jwks_file and jwks_url"},
		{"a secret for RSA", "authentication: {jwt: {algorithms: [RS256], secret_file: f}}", "f:1:23: authentication.jwt: HS256, HS384 and HS512 need secret_file, all others need jwks_file or jwks_url"},
		{"keys for HS256", "authentication: {jwt: {algorithms: HS256, jwks_file: f}}", "f:1:23: authentication.jwt: HS256, HS384 and HS512 need secret_file, all others need jwks_file or jwks_url"},
		{"no URL", "authentication: {jwt: {algorithms: RS256, jwks_url: jwks.json}}", "f:1:53: authentication.jwt.jwks_url: write a URL such as https://example.com/.well-known/jwks.json"},
		{"in clear", "authentication: {jwt: {algorithms: RS256, jwks_url: 'http://issuer.example.com/'}}", "f:1:53: authentication.jwt.jwks_url: an attacker on the network path of http:// could forge tokens: write https://, or set allow_insecure_jwks_url: true"},
		{"no limit", "authentication: {failed_attempts: often}", `f:1:35: authentication.failed_attempts: is "often": write a limit such as 10/min, or off`},
		{"a route's method that is not set up", routes + "authentication: [jwt]}]}", "f:2:101: gateway.routes.authentication: jwt is not set up: write authentication: {jwt: …}, see docs/authentication.md"},
		{"a route's method that is none", routes + "authentication: [oauth]}]}", `f:2:101: gateway.routes.authentication: there is no method "oauth": write api_keys, jwt or basic`},
		{"anonymous everywhere", routes + "allow_anonymous: true}]}", "f:2:102: gateway.routes.allow_anonymous: the route has no authentication: write authentication: too, or remove it"},
		{"half a certificate", "listeners: {gateway: {certificates: [{cert_file: a}]}}", "f:1:38: listeners.gateway.certificates: TLS needs both a certificate and its key: set cert_file and key_file"},
		{"no domains", "listeners: {gateway: {acme: {email: a}}}", "f:1:29: listeners.gateway.acme: there are no domains: write domains: [api.example.com], or remove it"},
		{"an authority in clear", "listeners: {gateway: {acme: {domains: a.example.com, directory_url: 'http://x/'}}}", "f:1:69: listeners.gateway.acme.directory_url: begins with \"http://\": write a URL that begins with https://"},
	} {
		if _, err := config.Parse("f", []byte(tt.text), noEnv); err == nil || err.Error() != tt.want {
			t.Errorf("%s: got  %v\nwant %s", tt.name, err, tt.want)
		}
	}
	for _, fine := range []string{
		"authentication: {failed_attempts: off, jwt: {algorithms: HS512, secret_file: f}}",
		"authentication: {jwt: {algorithms: [EdDSA], jwks_url: 'http://localhost:8080/jwks'}}",
		routes + "authentication: basic, allow_anonymous: true}]}\nauthentication: {basic: {files: u}}",
	} {
		if _, err := config.Parse("f", []byte(fine), noEnv); err != nil {
			t.Errorf("%s: %v", fine, err)
		}
	}
}

// A section with errors is not sound, so that sluice check, which then reads the files of the section, reports them once.
func TestJWTErrorsAreReportedOnce(t *testing.T) {
	c, err := config.Parse("f", []byte("authentication: {jwt: {algorithms: [RS256]}}"), noEnv)
	if err == nil || c.Sound("authentication") {
		t.Errorf("%v, sound: %v", err, c.Sound("authentication"))
	}
}
