package authn

import (
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/sluiceproject/sluice/internal/bounds"
)

// ChainConfig is the configuration of a [Chain].
type ChainConfig struct {
	Methods  []Method
	Optional bool      // accept requests without credentials, without an identity
	Attempts *Attempts // limit on wrong credentials; nil: unlimited
	Headers  *Headers  // identity headers for upstreams; nil: none
	// Client returns the address that Attempts counts by, for example behind trusted proxies. Default: that of the connection.
	Client func(*http.Request) string
}

// Chain is the authentication of a route. Without methods it accepts all requests, without an identity.
type Chain struct {
	cfg        ChainConfig
	challenges []string
}

// NewChain returns a chain. It tries API keys before tokens: both may be in Authorization: Bearer, and the API key method leaves
// values that look like tokens to the next method.
func NewChain(cfg ChainConfig) *Chain {
	cfg.Methods = slices.Clone(cfg.Methods)
	slices.SortStableFunc(cfg.Methods, func(a, b Method) int { return rank(a) - rank(b) })
	if cfg.Client == nil {
		cfg.Client = connection
	}
	c := &Chain{cfg: cfg}
	for _, m := range cfg.Methods {
		c.challenges = append(c.challenges, m.Info().Challenge)
	}
	return c
}

func rank(m Method) int {
	if _, keys := m.(*Keys); keys {
		return 0
	}
	return 1
}

// Admit returns the identity of a request, or its rejection. It removes identity headers that the client sent and sets them from
// the identity, so that rules can use them.
func (c *Chain) Admit(r *http.Request) (Identity, *Rejection) {
	c.cfg.Headers.Clean(r.Header)
	id, refused := c.admit(r)
	if refused == nil {
		c.cfg.Headers.set(r.Header, &id)
	}
	return id, refused
}

func (c *Chain) admit(r *http.Request) (Identity, *Rejection) {
	var try *attempt
	defer func() {
		if try != nil {
			try.end()
		}
	}()
	for _, m := range c.cfg.Methods {
		if !slices.ContainsFunc(m.Info().Places, func(p Place) bool { return p.in(r.Header) }) {
			continue
		}
		if c.cfg.Attempts != nil && try == nil {
			// Before the check, so that neither the response nor its timing reveals whether the credentials are right.
			var wait time.Duration
			var err error
			try, wait, err = c.cfg.Attempts.begin(r.Context(), c.cfg.Client(r), accountOf(m.Info(), r.Header))
			switch {
			case err != nil:
				return Identity{}, c.reject(err)
			case try == nil:
				bounds.WrongAttempts.Reached()
				return Identity{}, tooMany(wait, c.cfg.Attempts.max())
			}
		}
		if try != nil {
			try.guess = true // also if it panics
		}
		id, err := m.Authenticate(r)
		if try != nil {
			try.guess = isGuess(err)
		}
		if errors.Is(err, ErrNoCredentials) {
			continue
		}
		if err != nil {
			return Identity{}, c.reject(err)
		}
		if try != nil {
			try.right(accountOf(m.Info(), r.Header))
		}
		if !m.Info().Forward {
			id.forwarded = Place{}
		}
		return id, nil
	}
	if c.cfg.Optional || len(c.cfg.Methods) == 0 {
		return Identity{}, nil
	}
	return Identity{}, &Rejection{Status: http.StatusUnauthorized, Challenges: c.challenges, Detail: "credentials are required: see the WWW-Authenticate header"}
}

func isGuess(err error) bool {
	var wrong *CredentialError
	return errors.As(err, &wrong) && wrong.Guess
}

// reject returns the rejection for the error of a method.
func (c *Chain) reject(err error) *Rejection {
	var wrong *CredentialError
	switch {
	case errors.As(err, &wrong):
		return &Rejection{Status: http.StatusUnauthorized, Challenges: c.challenges, Detail: wrong.Reason}
	case errors.Is(err, ErrBusy):
		return &Rejection{Status: http.StatusServiceUnavailable, Detail: "too many passwords are being checked: try again", RetryAfter: time.Second}
	case errors.Is(err, ErrUnavailable):
		return &Rejection{Status: http.StatusServiceUnavailable, Detail: "tokens cannot be checked yet: try again", RetryAfter: 5 * time.Second}
	}
	return &Rejection{Status: http.StatusServiceUnavailable, Detail: "authentication is unavailable: try again", RetryAfter: time.Second}
}

func tooMany(wait time.Duration, limit int64) *Rejection {
	return &Rejection{
		Status: http.StatusTooManyRequests, RetryAfter: wait, Limit: limit,
		Detail: "too many wrong credentials from your address: no credentials are checked until the time in Retry-After",
	}
}

// Reads reports whether the chain reads or sets the header, given in canonical form. A nil chain does not.
func (c *Chain) Reads(header string) bool {
	if c == nil {
		return false
	}
	for _, m := range c.cfg.Methods {
		if slices.ContainsFunc(m.Info().Places, func(p Place) bool { return p.Header == header }) {
			return true
		}
	}
	return c.cfg.Headers != nil && slices.ContainsFunc(c.cfg.Headers.all, func(t identityHeader) bool { return t.header == header })
}

// Strip removes the credentials of all methods from a forwarded request, except right ones of a method with Forward. The others
// have not been checked, and upstreams might assume that they have.
func (c *Chain) Strip(h http.Header, id *Identity) {
	for _, m := range c.cfg.Methods {
		for _, p := range m.Info().Places {
			switch {
			case p == id.forwarded:
			case p.Scheme == "":
				remove(h, p.Header)
			case p.in(h):
				delete(h, p.Header)
			}
		}
	}
}
