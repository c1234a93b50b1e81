package httplimit

import (
	"net/http"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/admission"
	"github.com/sluiceproject/sluice/internal/cors"
	"github.com/sluiceproject/sluice/internal/quota"
)

// Option changes what [Middleware] and [RulesMiddleware] do.
type Option func(*config)

type config struct {
	formats   HeaderFormat
	epoch     bool
	headers   quota.Headers // of formats and epoch
	cost      func(*http.Request) int64
	skip      func(*http.Request) bool
	limitFor  func(*http.Request) *sluice.Limit
	chargeIf  func(status int) bool
	maxWait   time.Duration
	anyStatus bool
	onDenied  func(http.ResponseWriter, *http.Request, *Denial)
	onError   func(http.ResponseWriter, *http.Request, error)
	onDelay   func(*http.Request, DelayEvent)

	corsConfig *cors.Config
	cors       *cors.Policy // of corsConfig; nil: none
}

func newConfig(opts []Option) *config {
	c := &config{formats: HeadersXRateLimit | HeadersIETF}
	for _, o := range opts {
		o(c)
	}
	if c.formats&HeadersXRateLimit != 0 && c.formats&HeadersDraft03 != 0 {
		panic("httplimit: Headers: HeadersXRateLimit and HeadersDraft03 give X-Ratelimit-Limit different values: choose one")
	}
	if c.chargeIf != nil && c.anyStatus {
		panic("httplimit: ChargeIf charges by status and ChargeAnyStatus whatever it is: choose one")
	}
	c.headers = quota.NewHeaders(quota.Format(c.formats), c.epoch)
	c.compileCORS()
	return c
}

// admission is the configuration as those who decide know it.
func (c *config) admission() admission.Config {
	out := admission.Config{Headers: c.headers, MaxDelay: c.maxWait, ChargeAnyStatus: c.anyStatus, ChargeIf: c.chargeIf}
	if c.onDelay != nil {
		out.OnDelay = func(r *http.Request, d admission.DelayEvent) { c.onDelay(r, DelayEvent(d)) }
	}
	return out
}

// HeaderFormat is a set of headers that tell callers their quota. Formats are combined with |.
type HeaderFormat uint8

const (
	// HeadersXRateLimit is X-Ratelimit-Limit, -Remaining and -Reset, and on denials -Retry-After. The last two are absent if the cost
	// exceeds the limit.
	HeadersXRateLimit = HeaderFormat(quota.XRateLimit)
	// HeadersIETF is Ratelimit-Policy and Ratelimit as in draft-ietf-httpapi-ratelimit-headers-11, structured fields both.
	HeadersIETF = HeaderFormat(quota.IETF)
	// HeadersDraft03 is X-Ratelimit-Limit, -Remaining and -Reset as an early draft had them and Envoy sends them:
	// X-Ratelimit-Limit is `100, 100;w=60;name="api"`. It shares names with HeadersXRateLimit and excludes it.
	HeadersDraft03 = HeaderFormat(quota.Draft03)
)

// Headers chooses the headers that tell callers their quota. The default is HeadersXRateLimit|HeadersIETF; 0 sends none. Retry-After
// is sent on denials in any case.
func Headers(f HeaderFormat) Option { return func(c *config) { c.formats = f } }

// ResetAsUnixTime sends X-Ratelimit-Reset as a Unix timestamp by the local clock instead of seconds from now. The moment is the
// same: when the whole limit is available again or, on a denial, when a retry can succeed. It has no effect with HeadersDraft03,
// whose reset is always in seconds from now.
func ResetAsUnixTime() Option { return func(c *config) { c.epoch = true } }

// Cost says what a request costs; the default is 1. What costs 0 is always allowed. A negative cost is an error.
func Cost(f func(r *http.Request) int64) Option { return func(c *config) { c.cost = f } }

// Skip lets requests through that are none of the limiter's business, such as health checks. They are not counted and
// get no headers.
func Skip(f func(r *http.Request) bool) Option { return func(c *config) { c.skip = f } }

// LimitFor chooses the limit by request: a plan, say. The function returns a limit made by [sluice.Limit.Build], made
// once and not for each request, or nil for the rule's own. It is for limiters with one rule.
func LimitFor(f func(r *http.Request) *sluice.Limit) Option {
	return func(c *config) { c.limitFor = f }
}

// ChargeIf counts only requests with a certain outcome: ChargeIf(func(s int) bool { return s == 401 }) limits failed
// logins. A request is charged when it arrives and given back when the handler is done, if its status is not one to
// charge for; so callers cannot have more attempts under way than the limit allows. The headers, which are sent before,
// count it as charged.
//
// A handler that panics counts as status 500, or what it had sent before. One that hijacked the connection counts as
// 101. While the store cannot answer, what was charged stays charged.
func ChargeIf(f func(status int) bool) Option { return func(c *config) { c.chargeIf = f } }

// ChargeAnyStatus charges requests whatever their outcome, also under rules of [RulesMiddleware] that charge by status or settle. It is for
// handlers that never learn the outcome, because somebody else serves the request: giving back what was charged would
// leave such rules without effect. Nor do such handlers know when the request ends: limits on what is in flight do not
// apply.
func ChargeAnyStatus() Option { return func(c *config) { c.anyStatus = true } }

// MaxDelay is the longest that a request waits for its turn when the limit is a [sluice.LeakyQueue] or a rule of [RulesMiddleware]
// delays requests. A request whose place is later, or later than its context's deadline, is denied at once. The default
// is to wait as long as the queue is, which is Burst/Count windows, or as the rule says.
func MaxDelay(d time.Duration) Option {
	if d <= 0 {
		panic("httplimit: MaxDelay: use a positive duration, or a limit that is not a LeakyQueue to deny instead of waiting")
	}
	return func(c *config) { c.maxWait = d }
}

// DenialHandler answers denied requests instead of the default. Retry-After and the quota's headers have been set; the
// function has to write the status, d.Status unless it knows better, and a body.
func DenialHandler(f func(w http.ResponseWriter, r *http.Request, d *Denial)) Option {
	return func(c *config) { c.onDenied = f }
}

// ErrorHandler answers requests that could not be decided: the key function failed or the call to the limiter made no
// sense. The default is 400 for [ErrAmbiguousKey], what [RulesMiddleware] says for the errors of rules, and otherwise 500, in all cases
// without err, which may be about the inside. It is called for mistakes, not for a store that fails; see
// [sluice.FailMode] and [sluice.Events] for that.
func ErrorHandler(f func(w http.ResponseWriter, r *http.Request, err error)) Option {
	return func(c *config) { c.onError = f }
}

// DelayEvent is a request's departure from the line of a rule that delays requests.
type DelayEvent struct {
	Rule       string
	EnqueuedAt time.Time     // when it took its place in the line
	ReleasedAt time.Time     // when it went on to the handler, or to the line of another rule
	Waited     time.Duration // in all lines up to now; 0 if it could go on at once
}

// OnDelay is told of each request that leaves the line of a rule that delays requests, also of those that did not have to
// wait, before the handler is called. Departures of a [sluice.LeakyQueue] are at least Window/Count apart.
func OnDelay(f func(r *http.Request, d DelayEvent)) Option { return func(c *config) { c.onDelay = f } }
