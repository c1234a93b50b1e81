package rules

import (
	"cmp"
	"net/textproto"
	"time"
)

// QueueOptions are how requests of a rule that says on_limit: queue are kept and done later. What is zero is the
// default.
type QueueOptions struct {
	Pos Position
	// Ordered has the requests of one key done in the order in which they came, one after the other.
	Ordered bool
	// KeepHeaders are headers with credentials that are written down with the request. Those that are not named are left out.
	KeepHeaders  []string
	MaxAttempts  int           // how often it is tried before it is given up; default 10
	ExpiresAfter time.Duration // how long it may take in all; default a day
	ResultTTL    time.Duration // how long its answer is kept; default an hour
}

// WithDefaults returns the options with the defaults written out, and the names of headers as net/http
// keeps them.
func (o QueueOptions) WithDefaults() QueueOptions {
	o.MaxAttempts = cmp.Or(o.MaxAttempts, 10)
	o.ExpiresAfter = cmp.Or(o.ExpiresAfter, 24*time.Hour)
	o.ResultTTL = cmp.Or(o.ResultTTL, time.Hour)
	keep := make([]string, len(o.KeepHeaders))
	for i, name := range o.KeepHeaders {
		keep[i] = textproto.CanonicalMIMEHeaderKey(name)
	}
	o.KeepHeaders = keep
	return o
}

func (o *QueueOptions) isZero() bool {
	return o.Pos == (Position{}) && !o.Ordered && len(o.KeepHeaders) == 0 && o.MaxAttempts == 0 && o.ExpiresAfter == 0 && o.ResultTTL == 0
}

// MaxDeliveryAttempts bounds [QueueOptions.MaxAttempts].
const MaxDeliveryAttempts = 1000

const maxQueueTTL = 366 * 24 * time.Hour

func (c *compiler) queue(r *Rule) {
	o := &r.Queue
	if r.OnLimit != OnLimitQueue {
		if !o.isZero() {
			c.fault(o.Pos, "queue: is for on_limit: queue")
		}
		return
	}
	if o.MaxAttempts < 0 || o.MaxAttempts > MaxDeliveryAttempts {
		c.fault(o.Pos, "queue: attempts: %d is not between 1 and %d", o.MaxAttempts, MaxDeliveryAttempts)
	}
	c.checkKeepHeaders(o.Pos, "expires", o.ExpiresAfter)
	c.checkKeepHeaders(o.Pos, "results", o.ResultTTL)
}

func (c *compiler) checkKeepHeaders(at Position, what string, d time.Duration) {
	if d < 0 || d > maxQueueTTL || d > 0 && d < time.Second {
		c.fault(at, "queue: %s: %v is not between 1s and 366 days", what, d)
	}
}
