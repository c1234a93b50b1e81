package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/config"
	"github.com/sluiceproject/sluice/cmd/internal/gateway/authn"
	"github.com/sluiceproject/sluice/cmd/internal/gateway/gateway"
	"github.com/sluiceproject/sluice/cmd/internal/rulework/fileerrors"
	"github.com/sluiceproject/sluice/internal/keyenc"
	"github.com/sluiceproject/sluice/memstore"
)

// authMethod is an authentication method with files that can be reloaded.
type authMethod interface {
	authn.Method
	Run(ctx context.Context, log *slog.Logger)
	Reload(log *slog.Logger)
}

// authentication is the authentication of the gateway's clients.
type authentication struct {
	methods  map[string]authMethod
	attempts *authn.Attempts
	headers  *authn.Headers
	log      *slog.Logger
}

// newAuthentication reads the files. Its error joins all errors of all files.
func newAuthentication(c *config.Authentication, log *slog.Logger) (*authentication, error) {
	a := &authentication{methods: map[string]authMethod{}, log: log}
	var faults []error
	add := func(name string, m authMethod, err error) {
		a.methods[name] = m
		if err != nil {
			faults = append(faults, inSection("authentication."+name, err)...)
		}
	}
	for _, name := range c.Methods() {
		switch name {
		case config.MethodAPIKeys:
			in := &c.APIKeys
			m, err := authn.NewKeys(authn.KeysConfig{Files: in.Files, Header: in.Header, Bearer: in.Bearer, Forward: in.ForwardCredentials})
			add(name, m, err)
		case config.MethodJWT:
			m, err := authn.NewJWT(jwtConfig(&c.JWT))
			add(name, m, err)
		case config.MethodBasic:
			m, err := authn.NewBasic(authn.BasicConfig{Files: c.Basic.Files, Realm: c.Basic.Realm, Forward: c.Basic.ForwardCredentials})
			add(name, m, err)
		}
	}
	var err error
	if a.headers, err = authn.NewHeaders(c.IdentityHeaders); err != nil {
		faults = append(faults, fmt.Errorf("authentication.identity_headers: %w", err))
	}
	if a.attempts, err = failedAttempts(c.FailedAttempts); err != nil {
		faults = append(faults, fmt.Errorf("authentication.failed_attempts: %w", err))
	}
	return a, errors.Join(faults...)
}

// CheckAuthentication reads the files and returns their errors.
func CheckAuthentication(c *config.Authentication) error {
	_, err := newAuthentication(c, slog.New(slog.DiscardHandler))
	return err
}

// openAuthentication returns the authentication of the gateway, and warns if credentials are sent without TLS.
func openAuthentication(cfg *config.Config, log *slog.Logger) (*authentication, error) {
	a, err := newAuthentication(&cfg.Authentication, log)
	if err != nil {
		return nil, err
	}
	in := gatewayTLS(&cfg.Gateway)
	if address := cfg.Gateway.Address; len(a.methods) > 0 && !in.On() && !strings.HasPrefix(address, "unix:") && !isLoopback(address) {
		log.Warn("gateway listener accepts credentials without TLS", "address", address, "setting", "listeners.gateway.tls")
	}
	return a, nil
}

// inSection adds the name of the setting to errors without a position in a file.
func inSection(name string, err error) (all []error) {
	for _, e := range fileerrors.Each(err) {
		if found, _ := fileerrors.Split(e); len(found) == 0 {
			e = fmt.Errorf("%s: %w", name, e)
		}
		all = append(all, e)
	}
	return all
}

func jwtConfig(in *config.JWT) authn.JWTConfig {
	out := authn.JWTConfig{
		Algorithms: in.Algorithms, SecretFile: in.SecretFile, KeySetFile: in.JWKSFile, Issuer: in.Issuer, Audience: in.Audience,
		Leeway: in.Leeway, UserClaim: in.UserClaim, PlanClaim: in.PlanClaim, Strip: !in.ForwardCredentials,
	}
	if in.JWKSURL != "" {
		out.KeySetURL = &authn.KeySetURL{URL: in.JWKSURL, CA: in.JWKSCAFile, Interval: in.JWKSRefresh, AllowInsecure: in.AllowInsecureJWKSURL}
	}
	return out
}

// failedAttempts returns the limiter of wrong credentials per address, or nil if text is Off.
func failedAttempts(text string) (*authn.Attempts, error) {
	if text == config.Off {
		return nil, nil
	}
	limit, err := sluice.ParseLimit(text)
	if err != nil {
		return nil, err
	}
	store, err := memstore.Open(memstore.Config{MaxBytes: 4 << 20})
	if err != nil {
		return nil, err
	}
	limiter, err := sluice.New(store, "wrong-credentials", limit)
	if err != nil {
		return nil, err
	}
	return authn.NewAttempts(limiter), nil
}

// chain returns the authentication of a route. Every route has one, because identity headers of clients must be removed on all
// routes.
func (a *authentication) chain(r *config.Route) *authn.Chain {
	cfg := authn.ChainConfig{Optional: r.AllowAnonymous, Attempts: a.attempts, Headers: a.headers, Client: attemptsOf}
	for _, name := range r.Authentication {
		cfg.Methods = append(cfg.Methods, a.methods[name])
	}
	return authn.NewChain(cfg)
}

// attemptsOf returns the key of wrong credentials: the client address as in limits, /64 for IPv6.
func attemptsOf(r *http.Request) string {
	return string(keyenc.AppendAddr(nil, gateway.Client(r.Context()), 64))
}

// run reloads the files when they change, until ctx is done.
func (a *authentication) run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	for _, m := range a.methods {
		running.Go(func() { m.Run(ctx, a.log) })
	}
}

// reload reloads the files now.
func (a *authentication) reload() {
	for _, m := range a.methods {
		m.Reload(a.log)
	}
}
