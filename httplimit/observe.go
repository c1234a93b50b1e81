package httplimit

import (
	"net/http"
	"time"
)

// Observed is what [Rules] did with a request that it did not let pass at once.
type Observed struct {
	Denied bool
	Kept   bool          // see [Queue]
	Rule   string        // that denied, keeps or delayed it; of several the one that matters most
	Delay  time.Duration // that it waited and was then let pass
}

// Observe is told of requests that [Rules] denies, keeps or has delayed, once for each, before it is answered or goes on to
// the handler. It is for access logs.
func Observe(f func(r *http.Request, o Observed)) Option {
	return func(c *config) { c.observe = f }
}

func (c *config) observed(r *http.Request, o Observed) {
	if c.observe != nil {
		c.observe(r, o)
	}
}
