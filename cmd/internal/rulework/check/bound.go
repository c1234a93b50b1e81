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

// accuracyBound is how much a limit with accuracy: eventual may admit with a store that several processes share.
type accuracyBound struct {
	Limit     string  `json:"limit"`
	Most      int64   `json:"most"`              // if nothing is offered beyond it
	Staleness float64 `json:"staleness_seconds"` // what is offered in that time may be admitted too
	Example   struct {
		Offered float64 `json:"offered_per_second"` // twice the limit
		Most    int64   `json:"most"`
	} `json:"example"`
}

// ruleBounds are those of a rule's limits, without those of its tiers and overrides.
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
			fmt.Fprintf(w, "%s (accuracy: eventual) may admit up to %s + offered rate × %v s: %s if %s/s are offered\n", term.Printable(r.Rules[i].Name),
				term.Thousands(b.Most), b.Staleness, term.Thousands(b.Example.Most), strconv.FormatFloat(b.Example.Offered, 'g', 4, 64))
		}
	}
	if some {
		fmt.Fprintln(w)
	}
}

// settleBound is what a limit of a rule with settle can admit, and what it needs to admit about its whole rate.
type settleBound struct {
	Limit  string  `json:"limit"`
	Most   int64   `json:"most"`                      // at once; what requests in flight cost beyond their estimates comes on top
	Rate   float64 `json:"rate_per_second,omitempty"` // and so much in each second, of buckets and queues
	Window float64 `json:"window_seconds,omitempty"`  // in so long, of the others
	Within string  `json:"-"`                         // says which spans of the window's length are meant
	// Fill is burst/rate of a bucket. About its whole rate passes while (estimate/actual - 1) × time in flight is not above it.
	Fill float64 `json:"fill_seconds,omitempty"`
}

// settleBounds are those of a rule's limits, without those of its tiers and overrides.
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
		case sluice.SlidingWindowCounter: // of which the window before may be weighed too little
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
			name := term.Printable(r.Rules[i].Name) + " (settle)"
			if b.Rate > 0 {
				fmt.Fprintf(w, "%s: use in t seconds ≤ %s + %s × t + what requests in flight cost beyond their estimates\n", name, term.Thousands(b.Most), number(b.Rate))
			} else {
				fmt.Fprintf(w, "%s: use in %s %s s ≤ %s + what requests in flight cost beyond their estimates\n", name, b.Within, number(b.Window), term.Thousands(b.Most))
			}
			if fill := time.Duration(b.Fill * float64(time.Second)).Round(time.Millisecond); fill > 0 {
				fmt.Fprintf(w, "%s: about the whole rate passes while (estimate ÷ actual − 1) × time in flight ≤ %s: with estimates 2 × the actual cost up to %s in flight, 10 × up to %s\n",
					name, term.Duration(fill), term.Duration(fill), term.Duration((fill / 9).Round(time.Millisecond)))
				fmt.Fprintf(w, "%s: otherwise at most actual ÷ estimate × (1 + %s ÷ time in flight) of the rate\n", name, term.Duration(fill))
			}
		}
	}
	if some {
		fmt.Fprintln(w)
	}
}
