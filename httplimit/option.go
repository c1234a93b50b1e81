package httplimit

import (
	"net/http"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/internal/admission"
	"github.com/sluiceproject/sluice/internal/cors"
	"github.com/sluiceproject/sluice/internal/quota"
)

// Option configures [Middleware] and [RulesMiddleware].
type Option func(*config)

type config struct {
	formats   HeaderFormat
	epoch     bool
	headers   quota.Headers // derived from formats and epoch
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
	cors       *cors.Policy // compiled from corsConfig; nil: none
}

func newConfig(opts []Option) *config {
	c := &config{formats: HeadersXRateLimit | HeadersIETF}
	for _, o := range opts {
		o(c)
	}
	if c.formats&HeadersXRateLimit != 0 && c.formats&HeadersDraft03 != 0 {
		panic("httplimit: Headers: HeadersXRateLimit and HeadersDraft03 both define X-Ratelimit-Limit: choose one")
	}
	if c.chargeIf != nil && c.anyStatus {
		panic("httplimit: ChargeIf and ChargeAnyStatus exclude each other: choose one")
	}
	c.headers = quota.NewHeaders(quota.Format(c.formats), c.epoch)
	c.compileCORS()
	return c
}

// admission converts the configuration to that of package admission.
func (c *config) admission() admission.Config {
	out := admission.Config{Headers: c.headers, MaxDelay: c.maxWait, ChargeAnyStatus: c.anyStatus, ChargeIf: c.chargeIf}
	if c.onDelay != nil {
		out.OnDelay = func(r *http.Request, d admission.DelayEvent) { c.onDelay(r, DelayEvent(d)) }
	}
	return out
}

// HeaderFormat is a set of response headers that carry the quota. Formats are combined with |.
type HeaderFormat uint8

const (
	// HeadersXRateLimit is X-Ratelimit-Limit, -Remaining and -Reset, and on denials -Retry-After. Reset and Retry-After
	// are absent if the cost exceeds the limit.
	HeadersXRateLimit = HeaderFormat(quota.XRateLimit)
	// HeadersIETF is Ratelimit-Policy and Ratelimit, the structured fields of draft-ietf-httpapi-ratelimit-headers-11.
	HeadersIETF = HeaderFormat(quota.IETF)
	// HeadersDraft03 is X-Ratelimit-Limit, -Remaining and -Reset in the format of draft 03, which Envoy sends:
	// X-Ratelimit-Limit is `100, 100;w=60;name="api"`. It cannot be combined with HeadersXRateLimit, which uses the same
	// names.
	HeadersDraft03 = HeaderFormat(quota.Draft03)
)

// Headers sets the formats of the quota headers. The default is HeadersXRateLimit|HeadersIETF; 0 sends none. Retry-After
// is sent on denials in any case.
func Headers(f HeaderFormat) Option { return func(c *config) { c.formats = f } }

// ResetAsUnixTime sends X-Ratelimit-Reset as a Unix timestamp by the local clock instead of seconds from now. The time is
// the same: when the whole limit is available or, on a denial, when a retry can succeed. It has no effect with
// HeadersDraft03, whose reset is always in seconds from now.
func ResetAsUnixTime() Option { return func(c *config) { c.epoch = true } }

// Cost sets the function that returns the cost of a request; the default cost is 1. A cost of 0 is always allowed. A
// negative cost is an error, see [ErrorHandler].
func Cost(f func(r *http.Request) int64) Option { return func(c *config) { c.cost = f } }

// Skip sets the function that reports whether a request bypasses the limiter, such as a health check. Skipped requests
// are not counted and get no quota headers.
func Skip(f func(r *http.Request) bool) Option { return func(c *config) { c.skip = f } }

// LimitFor sets the function that returns the limit of a request, for example by plan, or nil for the limit of the rule.
// The limits must come from [sluice.Limit.Build] and be reused, not built for each request. It requires a limiter with
// exactly one rule.
func LimitFor(f func(r *http.Request) *sluice.Limit) Option {
	return func(c *config) { c.limitFor = f }
}

// ChargeIf charges only requests with certain statuses: ChargeIf(func(s int) bool { return s == 401 }) limits failed
// logins. A request is charged when it arrives and refunded when the handler is done if f returns false, so that a client
// never has more requests in flight than the limit allows. The quota headers, which are sent earlier, count it as charged.
//
// A handler that panics counts as status 500, or as the status that it has sent, and a hijacked connection as 101. While
// the store is unavailable, refunds are stored and sent on recovery, see [sluice.Limiter.Settle].
func ChargeIf(f func(status int) bool) Option { return func(c *config) { c.chargeIf = f } }

// ChargeAnyStatus charges every request, whatever its status, also under rules of [RulesMiddleware] that charge by status
// or actual cost, and skips concurrency limits. It is for handlers that see neither the outcome nor the end of a request,
// because another server serves it, as with forward authentication: refunds by the status of the handler's own response
// would leave such rules without effect.
func ChargeAnyStatus() Option { return func(c *config) { c.anyStatus = true } }

// MaxDelay sets the maximum delay of a request under a [sluice.LeakyQueue] or a rule of [RulesMiddleware] with on_limit:
// delay. A request that would have to wait longer, or beyond the deadline of its context, is denied at once. The default
// is the rule's max_delay or, for a leaky queue, its length: Burst/Count windows. It panics unless d is positive.
func MaxDelay(d time.Duration) Option {
	if d <= 0 {
		panic("httplimit: MaxDelay: duration is not positive: to deny instead of delay, use a limit that is not a LeakyQueue")
	}
	return func(c *config) { c.maxWait = d }
}

// DenialHandler sets the handler for denied requests. Retry-After and the quota headers are already set; f must write the
// status, usually d.Status, and the body.
func DenialHandler(f func(w http.ResponseWriter, r *http.Request, d *Denial)) Option {
	return func(c *config) { c.onDenied = f }
}

// ErrorHandler sets the handler for requests that cannot be decided, because the [KeyFunc] failed or the call to the
// limiter was invalid. By default the response is 400 for [ErrAmbiguousKey], the status that [RulesMiddleware] documents
// for errors of rules, and otherwise 500; it never contains err, which may reveal internal details. Store failures are
// not such errors: see [sluice.FailMode] and [sluice.Events].
func ErrorHandler(f func(w http.ResponseWriter, r *http.Request, err error)) Option {
	return func(c *config) { c.onError = f }
}

// DelayEvent is the release of a request from the delay queue of a rule.
type DelayEvent struct {
	Rule       string
	EnqueuedAt time.Time     // when the request entered the delay queue
	ReleasedAt time.Time     // when it went on to the handler or to the delay queue of another rule
	Waited     time.Duration // total delay in all delay queues so far; 0 if it was not delayed
}

// OnDelay sets the function that is called for each request that a delay queue releases, before the handler, also if the
// request was not delayed. Releases of a [sluice.LeakyQueue] are at least Window/Count apart.
func OnDelay(f func(r *http.Request, d DelayEvent)) Option { return func(c *config) { c.onDelay = f } }
