package authn

import (
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/sluiceproject/sluice/internal/bounds"
)

// ChainConfig is how a [Chain] is made.
type ChainConfig struct {
	Methods  []Method
	Optional bool      // who has no credentials is let in as nobody
	Attempts *Attempts // limits wrong ones; nil: they are not
	Headers  *Headers  // that tell upstreams who it is; nil: none
	// Client is the address that attempts count for, behind proxies that are trusted, say. Default: the connection's.
	Client func(*http.Request) string
}

// Chain is how the requests of a route say who they are from. One without methods lets all in, as nobody.
type Chain struct {
	cfg        ChainConfig
	challenges []string
}

// NewChain makes a chain. API keys are asked for before tokens: both may be in Authorization: Bearer, and keys know
// which are not theirs.
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

// Admit says who a request is from, or how it is to be refused. It removes what the client says in the headers that tell
// who it is, and sets them, so that rules may use them.
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
			// Before anything is looked at, so that neither the answer nor its time tells whether it would have been right.
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
	return Identity{}, &Rejection{Status: http.StatusUnauthorized, Challenges: c.challenges, Detail: "say who you are: the WWW-Authenticate header tells how"}
}

func isGuess(err error) bool {
	var wrong *CredentialError
	return errors.As(err, &wrong) && wrong.Guess
}

// reject is the answer when a method cannot say who it is.
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
	return &Rejection{Status: http.StatusServiceUnavailable, Detail: "nobody can tell now who you are: try again", RetryAfter: time.Second}
}

func tooMany(wait time.Duration, limit int64) *Rejection {
	return &Rejection{
		Status: http.StatusTooManyRequests, RetryAfter: wait, Limit: limit,
		Detail: "too many wrong credentials came from your address, and until there is room again no others are looked at",
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

// Strip removes credentials from what is forwarded: those of all methods, but for the ones that were found right if their
// method forwards them. Nobody has looked at the rest, and upstreams may think that somebody did.
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
