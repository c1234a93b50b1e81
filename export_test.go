package sluice

import "time"

// WithoutForesight has a limiter not reckon with what others will spend.
func WithoutForesight() Option { return func(l *Limiter) { l.foresees = false } }

// View finds what is believed of a take's key, and returns how to decide the take by it.
func View(l *Limiter, t Take) (decide func() bool) {
	e := l.views.held.find(t.Rule, t.Key)
	return func() bool { return e.decide(l, &t, time.Now(), &Decision{}) }
}

// DueBeforeAnswer returns how many keys are due to be exchanged when another goroutine has just made the view of a
// take's key and has not yet written down the answer that it was made for.
func DueBeforeAnswer(l *Limiter, t Take) int {
	l.views.held.add(&t, func(name heldName, slot string) *view { return &view{name: name, slot: slot} })
	return len(l.views.due(time.Now()))
}

// PartsOf are the limit as the store holds it and as this process counts it by itself while so many processes share it.
func PartsOf(l *Limiter, limit *Limit, nodes int) (leased, shared *Limit) {
	return l.leasedLimit(limit, nodes), l.local.share(limit, nodes)
}
