package check

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/sluiceproject/sluice"
	"github.com/sluiceproject/sluice/cmd/internal/term"
	"github.com/sluiceproject/sluice/rules"
)

// accuracyBound is the bound on admitted requests of a limit with accuracy: eventual and a store that several instances
// share.
type accuracyBound struct {
	Limit     string  `json:"limit"`
	Most      int64   `json:"max_admitted"`      // if nothing is offered beyond it
	Staleness float64 `json:"staleness_seconds"` // requests offered in that time may be admitted too
	Example   struct {
		Offered float64 `json:"offered_per_second"` // twice the limit
		Most    int64   `json:"max_admitted"`
	} `json:"example"`
}

// ruleBounds returns the bounds of a rule's limits, without those of its tiers and overrides.
func ruleBounds(r *rules.Rule) []accuracyBound {
	if r.Accuracy != sluice.AccuracyEventual {
		return nil
	}
	staleness := sluice.MaxStaleness(sluice.DefaultStoreTimeout).Seconds()
	var all []accuracyBound
	for i := range r.Limits {
		limit, err := r.Limits[i].Limit.Build()
		if err != nil || r.Limits[i].Unlimited || r.Limits[i].DenyAll {
			continue
		}
		b := accuracyBound{Limit: limit.String(), Most: limit.Max(), Staleness: staleness}
		b.Example.Offered = 2 * limit.Rate()
		b.Example.Most = b.Most + int64(b.Example.Offered*staleness)
		all = append(all, b)
	}
	return all
}

func (r *Report) writeBounds(w io.Writer) {
	some := false
	for i := range r.Rules {
		for _, b := range r.Rules[i].Bounds {
			some = true
			fmt.Fprintf(w, "%s (accuracy: eventual): admitted ≤ %s + offered rate × %v s, for example %s at %s requests/s\n", term.Printable(r.Rules[i].Name),
				term.Thousands(b.Most), b.Staleness, term.Thousands(b.Example.Most), strconv.FormatFloat(b.Example.Offered, 'g', 4, 64))
		}
	}
	if some {
		fmt.Fprintln(w)
	}
}

// settleBound is the bound on usage of a limit of a rule with actual_cost, and the condition for admitting its full
// rate.
type settleBound struct {
	Limit  string  `json:"limit"`
	Most   int64   `json:"max_admitted"`              // at once; what requests in flight cost beyond their estimates comes on top
	Rate   float64 `json:"rate_per_second,omitempty"` // and this much per second, for buckets and queues
	Window float64 `json:"window_seconds,omitempty"`  // per window of this length, for the others
	Within string  `json:"-"`                         // the kind of windows that are meant
	// Fill is burst/rate of a bucket. About the full rate is admitted while (estimate/actual - 1) × time in flight ≤
	// Fill.
	Fill float64 `json:"fill_seconds,omitempty"`
}

// settleBounds returns the bounds of a rule's limits, without those of its tiers and overrides.
func settleBounds(r *rules.Rule) []settleBound {
	if r.ActualCost == nil {
		return nil
	}
	var all []settleBound
	for i := range r.Limits {
		limit, err := r.Limits[i].Limit.Build()
		if err != nil || r.Limits[i].Unlimited || r.Limits[i].DenyAll {
			continue
		}
		b := settleBound{Limit: limit.String(), Most: limit.Max()}
		switch limit.Algorithm {
		case sluice.Concurrency:
			continue
		case sluice.TokenBucket, sluice.LeakyBucket:
			b.Rate = limit.Rate()
			if limit.Refill == sluice.RefillInterval { // a full bucket just before a refill, and the refill
				b.Most += limit.Count
			} else {
				b.Fill = float64(b.Most) / b.Rate
			}
		case sluice.LeakyQueue:
			b.Rate = limit.Rate()
		case sluice.FixedWindow:
			b.Window, b.Within = limit.Window.Seconds(), "a window of"
		case sluice.SlidingWindowCounter: // the weight of the previous window may be too low
			b.Most *= 2
			fallthrough
		default:
			b.Window, b.Within = limit.Window.Seconds(), "any"
		}
		all = append(all, b)
	}
	return all
}

func (r *Report) writeSettleBounds(w io.Writer) {
	some := false
	number := func(n float64) string { return strconv.FormatFloat(n, 'g', 4, 64) }
	for i := range r.Rules {
		for _, b := range r.Rules[i].Settles {
			some = true
			name := term.Printable(r.Rules[i].Name) + " (actual cost)"
			if b.Rate > 0 {
				fmt.Fprintf(w, "%s: usage in t seconds ≤ %s + %s × t + actual costs above the estimates of requests in flight\n", name, term.Thousands(b.Most), number(b.Rate))
			} else {
				fmt.Fprintf(w, "%s: usage in %s %s s ≤ %s + actual costs above the estimates of requests in flight\n", name, b.Within, number(b.Window), term.Thousands(b.Most))
			}
			if fill := time.Duration(b.Fill * float64(time.Second)).Round(time.Millisecond); fill > 0 {
				fmt.Fprintf(w, "%s: admitted ≈ the full rate while (estimate ÷ actual − 1) × time in flight ≤ %s, so with estimates of 2 × the actual cost up to %s in flight, of 10 × up to %s\n",
					name, term.Duration(fill), term.Duration(fill), term.Duration((fill / 9).Round(time.Millisecond)))
				fmt.Fprintf(w, "%s: otherwise admitted ≤ rate × actual ÷ estimate × (1 + %s ÷ time in flight)\n", name, term.Duration(fill))
			}
		}
	}
	if some {
		fmt.Fprintln(w)
	}
}
