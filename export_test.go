package sluice

// WithoutForesight has a limiter not reckon with what others will spend.
func WithoutForesight() Option { return func(l *Limiter) { l.foresees = false } }
