package overload

// SetChance replaces the limiter's random source to make simulations deterministic.
func (l *AdaptiveLimiter) SetChance(f func() float64) { l.chance = f }
