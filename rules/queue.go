package rules

import (
	"cmp"
	"net/textproto"
	"time"
)

// QueueOptions are how requests of a rule that says on_limit: queue are kept and done later. What is zero is the
// default.
type QueueOptions struct {
	At Position
	// Ordered has the requests of one key done in the order in which they came, one after the other.
	Ordered bool
	// Keep are headers with credentials that are written down with the request. Those that are not named are left out.
	Keep     []string
	Attempts int           // how often it is tried before it is given up; default 10
	Expires  time.Duration // how long it may take in all; default a day
	Results  time.Duration // how long its answer is kept; default an hour
}

// WithDefaults returns the options with the defaults written out, and the names of headers as net/http
// keeps them.
func (o QueueOptions) WithDefaults() QueueOptions {
	o.Attempts = cmp.Or(o.Attempts, 10)
	o.Expires = cmp.Or(o.Expires, 24*time.Hour)
	o.Results = cmp.Or(o.Results, time.Hour)
	keep := make([]string, len(o.Keep))
	for i, name := range o.Keep {
		keep[i] = textproto.CanonicalMIMEHeaderKey(name)
	}
	o.Keep = keep
	return o
}

func (o *QueueOptions) isZero() bool {
	return o.At == (Position{}) && !o.Ordered && len(o.Keep) == 0 && o.Attempts == 0 && o.Expires == 0 && o.Results == 0
}

// MaxAttempts bounds [QueueOptions.Attempts].
const MaxAttempts = 1000

const longestKept = 366 * 24 * time.Hour

func (c *compiler) queue(r *Rule) {
	o := &r.Queue
	if r.OnLimit != Queue {
		if !o.isZero() {
			c.fault(o.At, "queue: is for on_limit: queue")
		}
		return
	}
	if o.Attempts < 0 || o.Attempts > MaxAttempts {
		c.fault(o.At, "queue: attempts: %d is not between 1 and %d", o.Attempts, MaxAttempts)
	}
	c.kept(o.At, "expires", o.Expires)
	c.kept(o.At, "results", o.Results)
}

func (c *compiler) kept(at Position, what string, d time.Duration) {
	if d < 0 || d > longestKept || d > 0 && d < time.Second {
		c.fault(at, "queue: %s: %v is not between 1s and 366 days", what, d)
	}
}
