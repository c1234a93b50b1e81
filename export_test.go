package sluice

// WithoutForesight has a limiter not reckon with what others will spend.
func WithoutForesight() Option { return func(o *options) { o.noExtrapolation = true } }
