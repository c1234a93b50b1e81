package config

import (
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/strictyaml"
)

// Authentication is the authentication of clients at the gateway.
type Authentication struct {
	APIKeys         APIKeys
	JWT             JWT
	Basic           Basic
	IdentityHeaders map[string]string // the value of each header: user, plan, …
	FailedAttempts  string            // a limit, or Off
}

// Names of authentication methods.
const (
	MethodAPIKeys = "api_keys"
	MethodJWT     = "jwt"
	MethodBasic   = "basic"
)

// APIKeys is authentication by API key. Without files it is disabled.
type APIKeys struct {
	Files                      []string
	Header                     string
	Bearer, ForwardCredentials bool
}

// JWT is authentication by signed token. Without algorithms it is disabled.
type JWT struct {
	Algorithms           []string
	SecretFile           string
	JWKSFile             string
	JWKSURL, JWKSCAFile  string
	JWKSRefresh          time.Duration
	AllowInsecureJWKSURL bool
	Issuer               string
	Audience             []string
	Leeway               time.Duration
	UserClaim, PlanClaim string
	ForwardCredentials   bool
}

// Basic is authentication by user name and password. Without files it is disabled.
type Basic struct {
	Files              []string
	Realm              string
	ForwardCredentials bool
}

// Methods returns the names of the enabled methods.
func (a *Authentication) Methods() (names []string) {
	for _, m := range []struct {
		name string
		on   bool
	}{{MethodAPIKeys, len(a.APIKeys.Files) > 0}, {MethodJWT, len(a.JWT.Algorithms) > 0}, {MethodBasic, len(a.Basic.Files) > 0}} {
		if m.on {
			names = append(names, m.name)
		}
	}
	return names
}

// files returns all paths in the section.
func (a *Authentication) files() []*string {
	all := []*string{&a.JWT.SecretFile, &a.JWT.JWKSFile, &a.JWT.JWKSCAFile}
	for i := range a.APIKeys.Files {
		all = append(all, &a.APIKeys.Files[i])
	}
	for i := range a.Basic.Files {
		all = append(all, &a.Basic.Files[i])
	}
	return all
}

func (a *Authentication) settings() []Setting {
	return slices.Concat(
		[]Setting{
			{"authentication.api_keys.files", texts("list of files", &a.APIKeys.Files), "", "files of API key hashes and their users, as [`sluice apikey new`](authentication.md#api-keys) writes them; enables the method `api_keys`. Reloaded when they change"},
			{"authentication.api_keys.header", text("name", &a.APIKeys.Header), "X-Api-Key", "header that contains the API key"},
			{"authentication.api_keys.bearer", boolean(&a.APIKeys.Bearer), "false", "accept API keys in `Authorization: Bearer` too"},
			{"authentication.api_keys.forward_credentials", boolean(&a.APIKeys.ForwardCredentials), "false", "forward API keys to upstreams"},
		},
		a.JWT.settings(),
		[]Setting{
			{"authentication.basic.files", texts("list of files", &a.Basic.Files), "", "files of users and their password hashes, as [`sluice password`](authentication.md#basic-authentication) writes them; enables the method `basic`. Reloaded when they change"},
			{"authentication.basic.realm", text("text", &a.Basic.Realm), "Sluice", "realm that browsers show in the password dialog"},
			{"authentication.basic.forward_credentials", boolean(&a.Basic.ForwardCredentials), "false", "forward user names and passwords to upstreams"},
			{"authentication.identity_headers", value{"mapping of headers", (*decoder).identityHeaders, shape{"type": "object", "additionalProperties": textShape}}, "", "headers that carry the identity to upstreams, and the value of each: `{X-User: user, X-Plan: plan, X-Team: claim:team}`. Headers of these names from clients are removed on all routes"},
			{"authentication.failed_attempts", failedAttempts(&a.FailedAttempts), "10/min", "limit on failed authentication attempts per client address. Beyond it, requests with credentials get 429, right credentials included"},
		},
	)
}

func (j *JWT) settings() []Setting {
	return []Setting{
		{"authentication.jwt.algorithms", algorithms(&j.Algorithms), "", "accepted signature algorithms, such as `RS256`, regardless of the token's header; enables the method `jwt`. `HS256`, `HS384` and `HS512` need `secret_file`, all others a JWKS"},
		{"authentication.jwt.secret_file", file(&j.SecretFile), "", "file with the shared secret of `HS256`, `HS384` and `HS512`, at least 32 bytes. Reloaded when it changes"},
		{"authentication.jwt.jwks_file", file(&j.JWKSFile), "", "file of the JSON Web Key Set (JWKS). Reloaded when it changes"},
		{"authentication.jwt.jwks_url", urlText(&j.JWKSURL, `^[hH][tT][tT][pP][sS]?://[^/]`), "", "URL of the JWKS: `https://`, or `http://` with a loopback address. Fetched in the background, and again when a token names an unknown key"},
		{"authentication.jwt.jwks_ca_file", file(&j.JWKSCAFile), "", "PEM file of the CAs to verify that server's certificate with, instead of the system's"},
		{"authentication.jwt.jwks_refresh", interval(&j.JWKSRefresh, time.Second), "5m", "interval between fetches of the JWKS, at least `1s`"},
		{"authentication.jwt.allow_insecure_jwks_url", boolean(&j.AllowInsecureJWKSURL), "false", "allow `http://` with any address. An attacker on the network path can then forge tokens"},
		{"authentication.jwt.issuer", text("text", &j.Issuer), "", "required issuer (`iss`). Default: any"},
		{"authentication.jwt.audience", texts("list of texts", &j.Audience), "", "accepted audiences, of which a token must have one (`aud`). Default: any"},
		{"authentication.jwt.leeway", durationOrNone(&j.Leeway), "30s", "tolerated clock difference for `exp` and `nbf`, `0s` for none"},
		{"authentication.jwt.user_claim", text("name", &j.UserClaim), "sub", "claim with the user, `attr:user` in rules. Tokens without it are rejected"},
		{"authentication.jwt.plan_claim", text("name", &j.PlanClaim), "plan", "claim with the plan, `attr:plan` in rules. Every claim is `claim:NAME` in rules"},
		{"authentication.jwt.forward_credentials", boolean(&j.ForwardCredentials), "true", "forward tokens to upstreams"},
	}
}

var jwtAlgorithms = []string{
	"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "HS256", "HS384", "HS512",
}

func algorithms(to *[]string) value {
	list := texts("list of algorithms", to)
	return value{list.Type, func(d *decoder, n *strictyaml.Node) {
		before := d.Count()
		list.read(d, n)
		if d.Count() > before {
			return
		}
		items, _ := d.Strings(n, d.name)
		for _, item := range items {
			d.OneOf(item, d.name, jwtAlgorithms...)
		}
	}, listOf(shape{"enum": jwtAlgorithms})}
}

func (d *decoder) identityHeaders(n *strictyaml.Node) {
	if !d.IsMapping(n, d.name) {
		return
	}
	all := make(map[string]string, len(n.Fields))
	for _, f := range n.Fields {
		if v, ok := d.String(f.Value, d.name); ok {
			all[f.Key.Text] = v
		}
	}
	d.to.Authentication.IdentityHeaders = all
}

func failedAttempts(to *string) value {
	return checkedText("limit or `off`", to, func(s string) bool {
		l, err := sluice.ParseLimit(s)
		if err == nil {
			_, err = l.Build()
		}
		return err == nil && l.Algorithm != sluice.Concurrency || s == Off
	}, "write a limit such as 10/min, or off", shape{"type": "string", "pattern": "^" + Off + "$|" + ratePattern})
}

// checkAuthentication reports settings that are invalid together, and routes with methods that are not enabled.
func (d *decoder) checkAuthentication(at func(string) *strictyaml.Node) {
	d.checkJWT(at)
	c := &d.to.Authentication
	for _, name := range []string{MethodAPIKeys, MethodBasic} {
		if n := at("authentication." + name); n != nil && n.Lacks("files") && d.sound("authentication."+name) {
			d.Fault(n, "authentication.%s: there are no files: write files: [%s.yaml], or remove it", name, name)
		}
	}
	methods := c.Methods()
	for i, r := range d.to.Gateway.Routes {
		n := d.routeEntries[i].Field("authentication")
		for _, name := range r.Authentication {
			if !d.sound("authentication." + name) {
				continue
			}
			if !slices.Contains(methods, name) && slices.Contains([]string{MethodAPIKeys, MethodJWT, MethodBasic}, name) {
				d.Fault(n, "gateway.routes.authentication: %s is not set up: write authentication: {%s: …}, see docs/authentication.md", name, name)
			} else if !slices.Contains(methods, name) {
				d.Fault(n, "gateway.routes.authentication: there is no method %s: write %s", strictyaml.Quote(name), strictyaml.Words([]string{MethodAPIKeys, MethodJWT, MethodBasic}))
			}
		}
		if r.AllowAnonymous && len(r.Authentication) == 0 && d.routeEntries[i].sound {
			d.Fault(d.routeEntries[i].Field("allow_anonymous"), "gateway.routes.allow_anonymous: the route has no authentication: write authentication: too, or remove it")
		}
	}
}

func (d *decoder) checkJWT(at func(string) *strictyaml.Node) {
	n, c := at("authentication.jwt"), &d.to.Authentication.JWT
	if n == nil || !d.sound("authentication.jwt") {
		return
	}
	before := d.Count()
	defer func() {
		if d.Count() > before { // otherwise check would report the same fault again when it reads the files
			d.broken = append(d.broken, "authentication.jwt")
		}
	}()
	shared := 0
	for _, a := range c.Algorithms {
		if strings.HasPrefix(a, "HS") {
			shared++
		}
	}
	sources := 0
	for _, s := range []string{c.SecretFile, c.JWKSFile, c.JWKSURL} {
		if s != "" {
			sources++
		}
	}
	u, err := url.Parse(c.JWKSURL)
	switch {
	case len(c.Algorithms) == 0:
		d.Fault(n, "authentication.jwt: there are no algorithms: write those of your issuer, such as algorithms: [RS256]")
	case shared > 0 && shared < len(c.Algorithms):
		d.Fault(n.Field("algorithms"), "authentication.jwt.algorithms: HS256, HS384 and HS512 use a shared secret, all others use public keys: write one kind only")
	case sources != 1:
		d.Fault(n, "authentication.jwt: write one of secret_file, jwks_file and jwks_url")
	case (shared > 0) != (c.SecretFile != ""):
		d.Fault(n, "authentication.jwt: HS256, HS384 and HS512 need secret_file, all others need jwks_file or jwks_url")
	case c.JWKSURL != "" && (err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http"):
		d.Fault(n.Field("jwks_url"), "authentication.jwt.jwks_url: write a URL such as https://example.com/.well-known/jwks.json")
	case c.JWKSURL != "" && u.Scheme == "http" && !c.AllowInsecureJWKSURL && !isLoopback(u.Hostname()+":80"):
		d.Fault(n.Field("jwks_url"), "authentication.jwt.jwks_url: an attacker on the network path of http:// could forge tokens: write https://, or set allow_insecure_jwks_url: true")
	}
}
