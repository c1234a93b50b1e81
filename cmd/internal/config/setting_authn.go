package config

import (
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/strictyaml"
)

// Authentication is how requests to the gateway say who they are from.
type Authentication struct {
	APIKeys         APIKeys
	JWT             JWT
	Basic           Basic
	IdentityHeaders map[string]string // what each tells
	WrongAttempts   string            // a limit, or Off
}

// Names of methods, in routes.
const (
	MethodAPIKeys = "api_keys"
	MethodJWT     = "jwt"
	MethodBasic   = "basic"
)

// APIKeys are those of files. Without files there are none.
type APIKeys struct {
	Files           []string
	Header          string
	Bearer, Forward bool
}

// JWT are signed tokens. Without algorithms there are none.
type JWT struct {
	Algorithms           []string
	SecretFile           string
	JWKSFile             string
	JWKSURL, JWKSCA      string
	JWKSRefresh          time.Duration
	JWKSPlain            bool
	Issuer               string
	Audience             []string
	Leeway               time.Duration
	UserClaim, PlanClaim string
	Forward              bool
}

// Basic are users with passwords. Without files there are none.
type Basic struct {
	Files   []string
	Realm   string
	Forward bool
}

// Methods are the names of those that are set up.
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

// files are all paths in it.
func (a *Authentication) files() []*string {
	all := []*string{&a.JWT.SecretFile, &a.JWT.JWKSFile, &a.JWT.JWKSCA}
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
			{"authentication.api_keys.files", texts("list of files", &a.APIKeys.Files), "", "with API keys' hashes and whose they are, as [`sluice apikey new`](authentication.md#api-keys) writes them; with it routes may ask for `api_keys`. Read again when they change"},
			{"authentication.api_keys.header", text("name", &a.APIKeys.Header), "X-Api-Key", "the header that keys are in"},
			{"authentication.api_keys.bearer", boolean(&a.APIKeys.Bearer), "false", "take them from `Authorization: Bearer` too"},
			{"authentication.api_keys.forward", boolean(&a.APIKeys.Forward), "false", "send keys on to upstreams"},
		},
		a.JWT.settings(),
		[]Setting{
			{"authentication.basic.files", texts("list of files", &a.Basic.Files), "", "with users and their passwords' hashes, as [`sluice password`](authentication.md#passwords) makes them; with it routes may ask for `basic`. Read again when they change"},
			{"authentication.basic.realm", text("text", &a.Basic.Realm), "Sluice", "what browsers show when they ask for a password"},
			{"authentication.basic.forward", boolean(&a.Basic.Forward), "false", "send names and passwords on to upstreams"},
			{"authentication.identity_headers", value{"mapping of headers", (*decoder).identityHeaders, shape{"type": "object", "additionalProperties": textShape}}, "", "that tell upstreams who it is, and what each tells: `{X-User: user, X-Plan: plan, X-Team: claim:team}`. What clients send in them is removed, on all routes"},
			{"authentication.wrong_attempts", wrongAttempts(&a.WrongAttempts), "10/min", "how often wrong credentials may come from one address before it is answered 429, also with right ones"},
		},
	)
}

func (j *JWT) settings() []Setting {
	return []Setting{
		{"authentication.jwt.algorithms", algorithms(&j.Algorithms), "", "that tokens may be signed with, such as `RS256`, whatever they say; with it routes may ask for `jwt`. `HS256`, `HS384` and `HS512` need `secret_file`, all others a set of keys"},
		{"authentication.jwt.secret_file", file(&j.SecretFile), "", "with the secret of `HS256` and the like, 32 bytes or more. Read again when it changes"},
		{"authentication.jwt.jwks_file", file(&j.JWKSFile), "", "with the set of keys (JWKS). Read again when it changes"},
		{"authentication.jwt.jwks_url", urlText(&j.JWKSURL, `^[hH][tT][tT][pP][sS]?://[^/]`), "", "of the set of keys, `https://`, or `http://` on this machine. Fetched in the background, and again when a token names a key that is not there"},
		{"authentication.jwt.jwks_ca", file(&j.JWKSCA), "", "who signs that server's certificate, PEM, instead of those the system trusts"},
		{"authentication.jwt.jwks_refresh", duration(&j.JWKSRefresh), "5m", "how often the set is fetched"},
		{"authentication.jwt.jwks_plain", boolean(&j.JWKSPlain), "false", "allow `http://` to other machines: whoever is on the way can then sign tokens"},
		{"authentication.jwt.issuer", text("text", &j.Issuer), "", "that tokens must have (`iss`); without it any"},
		{"authentication.jwt.audience", texts("list of texts", &j.Audience), "", "of which tokens must have one (`aud`); without it any"},
		{"authentication.jwt.leeway", durationOrNone(&j.Leeway), "30s", "by which clocks may differ, `0s` for none"},
		{"authentication.jwt.user_claim", text("name", &j.UserClaim), "sub", "who it is: `attr:user` in rules. Tokens without it are refused"},
		{"authentication.jwt.plan_claim", text("name", &j.PlanClaim), "plan", "`attr:plan` in rules. All claims are `claim:NAME`"},
		{"authentication.jwt.forward", boolean(&j.Forward), "true", "send tokens on to upstreams"},
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

func wrongAttempts(to *string) value {
	return checkedText("limit or `off`", to, func(s string) bool {
		l, err := sluice.ParseLimit(s)
		if err == nil {
			_, err = l.Build()
		}
		return err == nil && l.Algorithm != sluice.Concurrency || s == Off
	}, "write a limit such as 10/min, or off", shape{"type": "string", "pattern": "^" + Off + "$|" + ratePattern})
}

// checkAuthentication finds settings that do not go together, and routes that ask for what is not set up.
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
		if r.Anonymous && len(r.Authentication) == 0 && d.routeEntries[i].sound {
			d.Fault(d.routeEntries[i].Field("anonymous"), "gateway.routes.anonymous: nobody is asked who they are on this route: write authentication: too, or remove it")
		}
	}
}

func (d *decoder) checkJWT(at func(string) *strictyaml.Node) {
	n, c := at("authentication.jwt"), &d.to.Authentication.JWT
	if n == nil || !d.sound("authentication.jwt") {
		return
	}
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
		d.Fault(n, "authentication.jwt: there are no algorithms: write those that your issuer signs with, such as algorithms: [RS256]")
	case shared > 0 && shared < len(c.Algorithms):
		d.Fault(n.Field("algorithms"), "authentication.jwt.algorithms: HS256, HS384 and HS512 have a shared secret and all others have keys: write one or the other")
	case sources != 1:
		d.Fault(n, "authentication.jwt: write one of secret_file, jwks_file and jwks_url")
	case (shared > 0) != (c.SecretFile != ""):
		d.Fault(n, "authentication.jwt: secret_file goes with HS256, HS384 and HS512, and they with nothing else")
	case c.JWKSURL != "" && (err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http"):
		d.Fault(n.Field("jwks_url"), "authentication.jwt.jwks_url: write a URL such as https://example.com/.well-known/jwks.json")
	case c.JWKSURL != "" && u.Scheme == "http" && !c.JWKSPlain && !isLoopback(u.Hostname()+":80"):
		d.Fault(n.Field("jwks_url"), "authentication.jwt.jwks_url: whoever is on the way to http:// could sign tokens: write https://, or allow it with jwks_plain: true")
	}
}
