package sluice

import "time"

// WithoutForesight has a limiter not reckon with what others will spend.
func WithoutForesight() Option { return func(l *Limiter) { l.foresees = false } }

// View finds what is believed of a take's key, and returns how to decide the take by it.
func View(l *Limiter, t Take) (decide func() bool) {
	e := l.views.held.find(t.Rule, t.Key)
	return func() bool { return e.decide(l, &t, time.Now(), &Decision{}) }
}
